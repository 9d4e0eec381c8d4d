// Command kube-client-metrics writes the test vectors of crates/kube-client-metrics: what the API server and client-go make of
// requests.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
)

var paths = []string{
	"/",
	"/api",
	"/api/",
	"/api/v1",
	"/apis",
	"/apis/apps",
	"/apis/apps/v1",
	"/version",
	"/healthz",
	"/healthz/ping",
	"/livez/etcd",
	"/readyz",
	"/metrics",
	"/openapi/v3/apis/apps/v1",
	"/.well-known/openid-configuration",
	"/custom/of/an/extension",
	"/api/v1/pods",
	"/api/v1/pods/",
	"/api/v1/pods?watch=true",
	"/api/v1/pods?watch=1&limit=5",
	"/api/v1/pods?watch",
	"/api/v1/pods?watch=",
	"/api/v1/pods?watch=0",
	"/api/v1/pods?watch=False",
	"/api/v1/pods?watch=false&watch=true",
	"/api/v1/pods?limit=500&fieldSelector=metadata.name%3Dobject",
	"/api/v1/watch/pods",
	"/api/v1/watch/namespaces/space/pods/object",
	"/api/v1/namespaces",
	"/api/v1/namespaces?watch=true",
	"/api/v1/namespaces/space",
	"/api/v1/namespaces/space/status",
	"/api/v1/namespaces/space/finalize",
	"/api/v1/namespaces/space/pods",
	"/api/v1/namespaces/space/pods?watch=true",
	"/api/v1/namespaces/space/pods/object",
	"/api/v1/namespaces/space/pods/object?watch=true",
	"/api/v1/namespaces/space/pods/object/status",
	"/api/v1/namespaces/space/pods/object/log?follow=true",
	"/api/v1/namespaces/space/pods/object/eviction",
	"/api/v1/namespaces/space/pods/object/binding",
	"/api/v1/namespaces/space/pods/object/ephemeralcontainers",
	"/api/v1/namespaces/space/pods/object/resize",
	"/api/v1/namespaces/space/serviceaccounts/object/token",
	"/api/v1/nodes",
	"/api/v1/nodes/object",
	"/api/v1/nodes/object/status",
	"/apis/apps/v1/deployments",
	"/apis/apps/v1/namespaces/space/deployments",
	"/apis/apps/v1/namespaces/space/deployments/object",
	"/apis/apps/v1/namespaces/space/deployments/object/scale",
	"/apis/apps/v1/watch/namespaces/space/deployments",
	"/apis/coordination.k8s.io/v1/namespaces/space/leases/object",
	"/apis/certificates.k8s.io/v1/certificatesigningrequests/object/approval",
	"/apis/metrics.k8s.io/v1beta1/nodes",
	"/apis/metrics.k8s.io/v1beta1/namespaces/space/pods/object",
	"/apis/example.com/v2alpha1/widgets/object/scale",
}

// client-go passes the URL template to registered metrics; so do we.
type template struct{ last string }

func (t *template) Observe(_ context.Context, _ string, u url.URL, _ time.Duration) {
	t.last = u.Path
}

type empty struct{}

func (empty) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER")
		os.Exit(2)
	}
	seen := &template{}
	metrics.Register(metrics.RegisterOpts{RequestLatency: seen})
	base, _ := url.Parse("https://cluster.example:6443")
	client, err := rest.NewRESTClient(base, "", rest.ClientContentConfig{
		GroupVersion: schema.GroupVersion{Version: "v1"},
		Negotiator:   runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), schema.GroupVersion{Version: "v1"}),
	}, nil, &http.Client{Transport: empty{}})
	if err != nil {
		panic(err)
	}
	factory := request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	var out strings.Builder
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			req, err := http.NewRequest(method, "https://cluster.example:6443"+path, nil)
			if err != nil {
				panic(err)
			}
			info, err := factory.NewRequestInfo(req)
			if err != nil {
				panic(err)
			}
			client.Verb(method).RequestURI(path).Do(context.Background())
			fmt.Fprintf(&out, "%s\t%s\t%t\t%s\t%s\t%s\t%s\t%s\t%s\n", method, path, info.IsResourceRequest, info.Verb,
				info.APIGroup, info.APIVersion, info.Resource, info.Subresource, seen.last)
		}
	}
	if err := os.WriteFile(filepath.Join(os.Args[1], "request_info.tsv"), []byte(out.String()), 0o644); err != nil {
		panic(err)
	}
}
