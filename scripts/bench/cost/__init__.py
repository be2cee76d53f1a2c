"""What looking costs, next to other tools: loads, tools, alternation, figures, outputs."""
