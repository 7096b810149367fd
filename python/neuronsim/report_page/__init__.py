"""One self-contained page of what commands found: read from their JSON documents (extra `report`)."""
