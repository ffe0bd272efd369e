"""Pictures as SVG: text that browsers, editors and pages show, in light and in dark."""
