"""Any log, run folder or published table to one comparable number per run, as text, data and plots."""
