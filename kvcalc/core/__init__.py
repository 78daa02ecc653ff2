"""What a cache is: errors, units, formats, states, architecture, workload and plan. Knows no engine and no file."""
