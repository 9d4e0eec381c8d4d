use super::*;

fn read(
    flags: &SettingsSource,
    variables: &[(&str, &str)],
) -> Result<Option<Settings>, SettingsError> {
    Settings::read(Signal::TRACES, flags, |name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn url(variables: &[(&str, &str)]) -> String {
    let read = read(&SettingsSource::default(), variables);
    read.unwrap().unwrap().url.to_string()
}

fn flag(endpoint: &str) -> SettingsSource {
    SettingsSource {
        endpoint: Some(endpoint.to_owned()),
        ..SettingsSource::default()
    }
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

#[test]
fn the_url_follows_the_specification() {
    for (variables, expected) in [
        (
            &[(ENDPOINT, "http://a:4318")][..],
            "http://a:4318/v1/traces",
        ),
        (&[(ENDPOINT, "http://a:4318/")], "http://a:4318/v1/traces"),
        (&[(ENDPOINT, "http://a/base/")], "http://a/base/v1/traces"),
        (&[(TRACES_ENDPOINT, "https://a/x?y=1")], "https://a/x?y=1"),
        (&[(TRACES_ENDPOINT, "https://a")], "https://a/"),
        (
            &[(ENDPOINT, "http://a"), (TRACES_ENDPOINT, "http://b/t")],
            "http://b/t",
        ),
        (
            &[(ENDPOINT, "http://[fd00::1]:4318")],
            "http://[fd00::1]:4318/v1/traces",
        ),
    ] {
        assert_eq!(url(variables), expected, "{variables:?}");
    }
    let grpc = [
        (ENDPOINT, "http://a:4317/x"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ];
    let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(url(&grpc), format!("http://a:4317{method}"));
}

#[test]
fn flags_precede_variables_and_those_of_the_signal_the_general_ones() {
    let variables = [
        (ENDPOINT, "http://env:1"),
        (TRACES_ENDPOINT, "http://traces:2"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
    ];
    let settings = read(&flag("http://flag:3/base"), &variables)
        .unwrap()
        .unwrap();
    assert_eq!((settings.host(), settings.port()), ("flag", 3));
    assert_eq!(settings.protocol, Protocol::Grpc);
    assert_eq!(settings.compression, Compression::None);
    assert_eq!(format!("{:?}", settings.headers), r#"{"b"}"#);
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.certificate, Some(PathBuf::from("/ca.pem")));
    let chosen = SettingsSource {
        protocol: Some(Protocol::HttpProtobuf),
        compression: Some(Compression::Gzip),
        certificate: Some(PathBuf::from("/own.pem")),
        ..flag("https://flag")
    };
    let settings = read(&chosen, &variables).unwrap().unwrap();
    assert_eq!(settings.protocol, Protocol::HttpProtobuf);
    assert_eq!(settings.compression, Compression::Gzip);
    assert_eq!(settings.certificate, Some(PathBuf::from("/own.pem")));
    assert_eq!((settings.port(), settings.is_tls()), (443, true));
}

#[test]
fn without_an_endpoint_nothing_is_sent() {
    let none = SettingsSource::default();
    assert_eq!(read(&none, &[]).unwrap(), None);
    assert_eq!(read(&none, &[(ENDPOINT, "")]).unwrap(), None);
    for off in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        assert_eq!(read(&none, &[(ENDPOINT, "http://a"), off]).unwrap(), None);
        assert!(read(&flag("http://a"), &[off]).unwrap().is_some());
    }
}

#[test]
fn a_bad_setting_is_named_without_its_secret() {
    for (variable, value) in [
        (ENDPOINT, "a:4318"),
        (ENDPOINT, "http://"),
        (ENDPOINT, "ftp://a"),
        (ENDPOINT, "http://user:secret@a"),
        (ENDPOINT, "http://a:0"),
        (ENDPOINT, "http://a:"),
        (ENDPOINT, "http://a b"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0d%0ab"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=secret"),
    ] {
        let variables = [(variable, value), (TRACES_ENDPOINT, "http://a")];
        let used = if variable == ENDPOINT {
            &variables[..1]
        } else {
            &variables[..]
        };
        let error = read(&SettingsSource::default(), used).unwrap_err();
        assert_eq!(error.name, variable, "{value}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = read(&flag("no url"), &[]).unwrap_err();
    assert_eq!(error.name, "otlp-endpoint");
}

#[test]
fn headers_are_decoded_and_never_printed() {
    let headers = Headers::parse(" Api-Key = a%20b%3D , x=s3cret=1 ,").unwrap();
    let pairs: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(pairs, [("api-key", "a b="), ("x", "s3cret=1")]);
    assert!(headers.iter().all(|(_, value)| value.is_sensitive()));
    assert!(!format!("{headers:?}").contains("s3cret"));
    let lines = "# for the gateway\n\nAuthorization: Bearer s3cret:1\r\nX-Scope: a\n";
    let headers = Headers::parse_lines(lines).unwrap();
    let pairs: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(
        pairs,
        [("authorization", "Bearer s3cret:1"), ("x-scope", "a")]
    );
    for bad in ["a", "a b: c", "a: \u{7f}"] {
        assert!(Headers::parse_lines(bad).is_err(), "{bad:?}");
    }
    let many: Vec<String> = (0..=MAX_HEADERS).map(|at| format!("h{at}=v")).collect();
    assert!(Headers::parse(&many.join(",")).is_err());
}
