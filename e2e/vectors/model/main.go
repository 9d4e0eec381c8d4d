// Command model writes the test vectors of crates/base/model from the Go code whose behaviour that crate follows:
// k8s.io/apimachinery's quantities, the standard library's durations and times, and the proxy rules of golang.org/x/net.
//
// Each file holds tab-separated lines; lines that start with # are comments. Nothing here depends on the clock or on
// an unseeded random source, so that a second run writes the same bytes.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: model <folder to write the vectors to>")
	}
	folder := os.Args[1]
	for name, lines := range map[string][]string{
		"quantity_parse.tsv":       quantityParse(),
		"quantity_new.tsv":         quantityNew(),
		"quantity_pairs.tsv":       quantityPairs(),
		"quantity_divergences.tsv": quantityDivergences(),
		"duration_parse.tsv":       durationParse(),
		"duration_string.tsv":      durationString(),
		"time_format.tsv":          timeFormat(),
		"time_parse.tsv":           timeParse(),
		"no_proxy.tsv":             noProxy(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// row joins fields with tabs and refuses a field that would break the line.
func row(fields ...any) string {
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = fmt.Sprint(field)
		if strings.ContainsAny(texts[i], "\t\n") {
			log.Fatalf("field %q would break its line", texts[i])
		}
	}
	return strings.Join(texts, "\t")
}

// unique keeps the first of equal items.
func unique[T comparable](items []T) []T {
	seen := map[T]bool{}
	kept := items[:0:0]
	for _, item := range items {
		if !seen[item] {
			seen[item] = true
			kept = append(kept, item)
		}
	}
	return kept
}
