//go:build tools

// Package etcd pins the etcd that the end-to-end tests keep the cluster's state in.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package etcd

import _ "go.etcd.io/etcd/server/v3"
