module kubevitals/e2e/vectors/spdy

go 1.26.0

require github.com/moby/spdystream v0.5.1
