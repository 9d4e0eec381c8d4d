//go:build tools

// Package blackbox pins the prober that ours is compared with.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package blackbox

import (
	_ "github.com/prometheus/blackbox_exporter"
)
