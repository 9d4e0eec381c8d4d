//go:build tools

// Package prometheus pins the Prometheus that reads what we expose, and the tool that checks rules.
//
// Nothing here is compiled: the imports keep the commands and all they need in go.mod and go.sum.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
