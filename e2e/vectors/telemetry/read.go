package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// read writes what a Prometheus server makes of a body, and after that what Go's client library does.
func read(body []byte) *bytes.Buffer {
	out := &bytes.Buffer{}
	fmt.Fprintln(out, "# Prometheus, as it scrapes native histograms and keeps the classic ones")
	parser := textparse.NewProtobufParser(body, false, true, false, false, labels.NewSymbolTable())
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		switch entry {
		case textparse.EntryHelp:
			name, help := parser.Help()
			fmt.Fprintf(out, "HELP %s %q\n", name, help)
		case textparse.EntryType:
			name, kind := parser.Type()
			fmt.Fprintf(out, "TYPE %s %s\n", name, kind)
		case textparse.EntrySeries:
			_, timestamp, value := parser.Series()
			fmt.Fprintf(out, "%s %g%s\n", series(parser), value, at(timestamp))
		case textparse.EntryHistogram:
			_, timestamp, whole, floats := parser.Histogram()
			if floats != nil {
				log.Fatal("a histogram of floats")
			}
			if err := whole.Validate(); err != nil {
				log.Fatal(err)
			}
			fmt.Fprintf(out, "%s schema %d %s%s\n", series(parser), whole.Schema, whole, at(timestamp))
		default:
			fmt.Fprintf(out, "entry %v\n", entry)
		}
	}
	fmt.Fprintln(out, "# expfmt, which writes the text format of what it decoded")
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	decoder := expfmt.NewDecoder(bytes.NewReader(body), format)
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			log.Fatal(err)
		}
		if _, err := expfmt.MetricFamilyToText(out, &family); err != nil {
			log.Fatal(err)
		}
	}
}

func series(parser textparse.Parser) string {
	var found labels.Labels
	parser.Labels(&found)
	return found.String()
}

func at(timestamp *int64) string {
	if timestamp == nil {
		return ""
	}
	return fmt.Sprintf(" @%d", *timestamp)
}
