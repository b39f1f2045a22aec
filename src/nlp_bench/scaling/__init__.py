"""How the rate grows with the number of GPUs: curves of one workload on one machine, strong or weak, with error bars."""
