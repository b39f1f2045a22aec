"""Results in the forms of others: MLPerf, torchtitan's benchmark pages, collectors of continuous benchmarking."""
