"""Plans as users have them: made, applied, explained and printed."""
