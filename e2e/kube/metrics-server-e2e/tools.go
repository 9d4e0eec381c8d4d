//go:build tools

// Package metricsservere2e pins metrics-server's own end-to-end tests, which run unmodified against our server.
//
// Nothing here is compiled: the imports keep the packages that the tests need in go.mod and go.sum.
package metricsservere2e

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/prometheus/common/expfmt"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/portforward"
	_ "k8s.io/client-go/transport/spdy"
	_ "k8s.io/metrics/pkg/client/clientset/versioned"
	_ "sigs.k8s.io/metrics-server/pkg/utils"
)
