"""What every engine is made of: its settings and plan, the flags of its command line, the lines of its log."""
