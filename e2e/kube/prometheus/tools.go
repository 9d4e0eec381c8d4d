//go:build tools

// Package prometheus pins the Prometheus that reads what we expose.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
