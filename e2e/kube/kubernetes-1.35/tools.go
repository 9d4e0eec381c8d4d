//go:build tools

// Package kubelet pins the oldest kubelet that the end-to-end tests run, beside the control plane of ../kubernetes.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package kubelet

import _ "k8s.io/kubernetes/cmd/kubelet"
