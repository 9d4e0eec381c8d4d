//go:build tools

// Package metricsserver pins the metrics-server that ours is compared with and must be able to replace.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package metricsserver

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
