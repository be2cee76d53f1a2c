"""Methods and frames of Java, by what HotSpot tells its own tools."""
