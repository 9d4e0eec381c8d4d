//go:build tools

// Package verticalpodautoscaler pins the recommender that reads our metrics.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package verticalpodautoscaler

import _ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender"
