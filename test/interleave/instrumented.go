package interleave

// instrumented says that the points are compiled in. The overlay has true here.
const instrumented = false
