"""What a graph spells out, recognised: patterns as data, and the composites that they find."""
