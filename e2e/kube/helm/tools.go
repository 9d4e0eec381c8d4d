//go:build tools

// Package helm pins the Helm that renders and installs our chart.
//
// Nothing here is compiled: the import keeps the command and all it needs in go.mod and go.sum.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
