"""What the project is made and checked with: generators, comparisons, measurements, clusters to test on."""
