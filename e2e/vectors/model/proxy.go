package main

import (
	"log"
	"net"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// noProxy lists NO_PROXY, host, port, and whether a request over HTTPS goes through the proxy.
func noProxy() []string {
	lists := []string{
		"", "*", " * ", "a.com,*", ",", " , ,",
		"10.0.0.0/8", "10.96.0.1/12", "10.0.0.1", "10.0.0.1:443", "10.0.0.1:6443", "10.0.0.1/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0/+8", "0.0.0.0/0",
		"::/0", "fd00::/8", "fd00::1", "[fd00::1]", "[fd00::1]:443", "fd00::1:443", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/80", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:443", "[fd00::1", "[]:443", ":443",
		"example.com", ".example.com", "*.example.com", "*example.com", "example.com:443", ".example.com:6443", "*.example.com:443", "example.com:", "EXAMPLE.com", " example.com ", "com", ".", "*.", "ample.com", "example.com.",
		"svc,.svc,.cluster.local,10.96.0.1", "localhost", "kubernetes.default.svc", "a:b:c", "[example.com]:443", "a]:443", "010.0.0.1", "10.0.0.1.", "10.0.0", "a.com,10.0.0.1:443,example.com",
	}
	targets := [][2]string{
		{"10.0.0.1", "443"}, {"10.0.0.1", "6443"}, {"10.111.0.9", "443"}, {"11.0.0.1", "443"}, {"10.96.0.1", "443"},
		{"fd00::1", "443"}, {"fd00::1", "6443"}, {"fe00::1", "443"}, {"::ffff:10.0.0.1", "443"}, {"::2", "443"},
		{"example.com", "443"}, {"www.example.com", "443"}, {"www.example.com", "6443"}, {"Example.COM", "443"}, {"notexample.com", "443"}, {"example.com.", "443"},
		{"kubernetes.default.svc", "443"}, {"kubernetes", "6443"}, {"api.cluster.local", "443"},
		{"localhost", "443"}, {"LOCALHOST", "443"}, {"127.0.0.1", "443"}, {"127.8.9.1", "80"}, {"::1", "443"}, {"::ffff:127.0.0.1", "443"},
	}
	lines := []string{"# NO_PROXY in angle brackets, host, port, whether the proxy is used"}
	for _, list := range lists {
		config := httpproxy.Config{HTTPSProxy: "http://proxy.test:3128", NoProxy: list}
		proxyFor := config.ProxyFunc()
		for _, target := range targets {
			proxy, err := proxyFor(&url.URL{Scheme: "https", Host: net.JoinHostPort(target[0], target[1])})
			if err != nil {
				log.Fatal(err)
			}
			lines = append(lines, row("<"+list+">", target[0], target[1], proxy != nil))
		}
	}
	return lines
}
