//go:build tools

// Package resourceconsumer pins the program of the image that metrics-server's own end-to-end tests run in pods.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package resourceconsumer

import _ "k8s.io/kubernetes/test/images/resource-consumer/consume-cpu"
