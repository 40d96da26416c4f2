"""Pictures of flows: laid out here, drawn as SVG or written as Mermaid, without a script or a library."""
