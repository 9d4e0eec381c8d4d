//! `dns`: a query, sent to the target.

mod client;
mod kinds;
pub(crate) mod lookup;
pub(crate) mod message;
mod name;
mod record;
#[cfg(test)]
mod tests;
mod wire;

use std::net::SocketAddr;

use regex::bytes::Regex;

use crate::run::Run;
use crate::{Failure, NetworkSettings, Phase, ProbeTls, Reason, SettingsError, Target};

use super::connect::{connect, handshake, resolve, udp_socket};
use client::{QueryError, ask_stream, ask_udp};
pub use kinds::{DnsClass, DnsType};
use message::{Message, Question};
use record::Record;

/// The settings of `dns`.
#[derive(Debug, Clone)]
pub struct DnsSettings {
    pub query_name: String,
    pub query_type: DnsType,
    pub query_class: DnsClass,
    pub recursion_desired: bool,
    /// `transport_protocol: tcp`. A truncated answer over UDP is asked for again over TCP.
    pub tcp: bool,
    pub dns_over_tls: bool,
    pub tls_config: ProbeTls,
    /// Valid response codes; only NOERROR if empty. [`DnsSettings::rcode`] has their names.
    pub valid_rcodes: Vec<u16>,
    pub validate_answer_rrs: RecordRules,
    pub validate_authority_rrs: RecordRules,
    pub validate_additional_rrs: RecordRules,
    pub network: NetworkSettings,
}

/// What the records of a section must be like. A record is matched in the form of zone files, with
/// a tab between its name, time to live, class, type and data.
#[derive(Debug, Clone, Default)]
pub struct RecordRules {
    /// Fails when a record matches one of these.
    pub fail_if_matches_regexp: Vec<Regex>,
    /// Fails when there are records, and each matches all of these.
    pub fail_if_all_match_regexp: Vec<Regex>,
    /// Fails when a record does not match all of these. This is what `blackbox_exporter` does for
    /// `fail_if_all_match_regexp`, the reverse of its name.
    pub fail_if_not_all_match_regexp: Vec<Regex>,
    /// Fails when a record does not match all of these, or there is no record.
    pub fail_if_not_matches_regexp: Vec<Regex>,
    /// Fails when no record matches any of these.
    pub fail_if_none_matches_regexp: Vec<Regex>,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            query_name: String::new(),
            query_type: DnsType::ANY,
            query_class: DnsClass::IN,
            recursion_desired: true,
            tcp: false,
            dns_over_tls: false,
            tls_config: ProbeTls::default(),
            valid_rcodes: Vec::new(),
            validate_answer_rrs: RecordRules::default(),
            validate_authority_rrs: RecordRules::default(),
            validate_additional_rrs: RecordRules::default(),
            network: NetworkSettings::default(),
        }
    }
}

impl DnsSettings {
    /// Returns a response code by its name, such as `NXDOMAIN`.
    pub fn rcode(name: &str) -> Option<u16> {
        kinds::rcode(name)
    }

    /// Checks what is known before the first query.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.question()
            .map(drop)
            .map_err(|error| SettingsError::Invalid {
                setting: "query_name",
                problem: error.to_string(),
            })
    }

    fn question(&self) -> Result<Question, name::NameError> {
        Question::new(&self.query_name, self.query_type, self.query_class)
    }

    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let (host, port) = target.address(run)?;
        run.is_query = true;
        let question = self.question();
        let question = question.map_err(|error| run.fail(Reason::Internal, error.to_string()))?;
        let server = SocketAddr::new(resolve(run, host, &self.network).await?, port);
        let message = if self.tcp || self.dns_over_tls {
            let name = target.server_name(host, &self.tls_config);
            self.ask_tcp(run, server, name, &question).await?
        } else {
            let message = self.ask_udp(run, server, &question).await?;
            if message.is_truncated {
                self.ask_tcp(run, server, host, &question).await?
            } else {
                message
            }
        };
        self.judge(run, &message)
    }

    async fn ask_udp(
        &self,
        run: &mut Run<'_>,
        server: SocketAddr,
        question: &Question,
    ) -> Result<Message, Failure> {
        run.enter(Phase::Connect);
        let socket = udp_socket(server, self.network.source_ip_address).await;
        let socket = socket.map_err(|error| run.fail_io(&error))?;
        run.enter(Phase::Request);
        ask_udp(&socket, question, self.recursion_desired)
            .await
            .map_err(|error| query_failure(run, &error))
    }

    async fn ask_tcp(
        &self,
        run: &mut Run<'_>,
        server: SocketAddr,
        host: &str,
        question: &Question,
    ) -> Result<Message, Failure> {
        let mut stream = connect(run, server, &self.network).await?;
        let answer = if self.dns_over_tls {
            let mut stream = handshake(run, stream, host, &self.tls_config, &[]).await?;
            run.enter(Phase::Request);
            ask_stream(&mut stream, question, self.recursion_desired).await
        } else {
            run.enter(Phase::Request);
            ask_stream(&mut stream, question, self.recursion_desired).await
        };
        answer.map_err(|error| query_failure(run, &error))
    }

    fn judge(&self, run: &mut Run<'_>, message: &Message) -> Result<(), Failure> {
        let count = |records: &[Record]| u32::try_from(records.len()).ok();
        run.facts.dns_rcode = Some(message.rcode);
        run.facts.dns_answers = count(&message.answers);
        run.facts.dns_authority = count(&message.authority);
        run.facts.dns_additional = count(&message.additional);
        run.facts.dns_serial = message.answers.iter().find_map(|record| record.serial);
        let is_valid = if self.valid_rcodes.is_empty() {
            message.rcode == 0
        } else {
            self.valid_rcodes.contains(&message.rcode)
        };
        if !is_valid {
            let reason = match message.rcode {
                2 => Reason::DnsServfail,
                3 => Reason::DnsNxdomain,
                _ => Reason::Rcode,
            };
            let name = kinds::rcode_name(message.rcode);
            return Err(run.fail(reason, format!("the server answered {name}")));
        }
        for (section, records, rules) in [
            ("answer", &message.answers, &self.validate_answer_rrs),
            (
                "authority",
                &message.authority,
                &self.validate_authority_rrs,
            ),
            (
                "additional",
                &message.additional,
                &self.validate_additional_rrs,
            ),
        ] {
            if let Some(problem) = rules.problem(records) {
                let message = format!("{problem} in the {section} section");
                return Err(run.fail(Reason::AnswerMismatch, message));
            }
        }
        Ok(())
    }
}

impl RecordRules {
    fn problem(&self, records: &[Record]) -> Option<String> {
        let matches = |regexp: &Regex, record: &Record| regexp.is_match(record.text.as_bytes());
        let any = |regexps: &[Regex], record: &Record| regexps.iter().any(|r| matches(r, record));
        let all = |regexps: &[Regex], record: &Record| regexps.iter().all(|r| matches(r, record));
        let rules = &self.fail_if_matches_regexp;
        if let Some(record) = records.iter().find(|record| any(rules, record)) {
            return Some(format!("{:?} matches fail_if_matches_regexp", record.text));
        }
        let rules = &self.fail_if_all_match_regexp;
        let has_rules = !rules.is_empty() && !records.is_empty();
        if has_rules && records.iter().all(|record| all(rules, record)) {
            return Some("all records match fail_if_all_match_regexp".to_owned());
        }
        let not_matching = [
            &self.fail_if_not_matches_regexp,
            &self.fail_if_not_all_match_regexp,
        ];
        let mut records_of = not_matching.into_iter().flat_map(|rules| {
            let failing = records.iter().filter(|record| !all(rules, record));
            failing.map(|record| &record.text)
        });
        if let Some(record) = records_of.next() {
            return Some(format!("{record:?} does not match what records must"));
        }
        if records.is_empty() && !self.fail_if_not_matches_regexp.is_empty() {
            return Some("no record for fail_if_not_matches_regexp".to_owned());
        }
        let rules = &self.fail_if_none_matches_regexp;
        if !rules.is_empty() && !records.iter().any(|record| any(rules, record)) {
            return Some("no record matches fail_if_none_matches_regexp".to_owned());
        }
        None
    }
}

fn query_failure(run: &Run<'_>, error: &QueryError) -> Failure {
    match error {
        QueryError::Io(error) => run.fail_io(error),
        QueryError::Malformed(_) | QueryError::Other => {
            run.fail(Reason::AnswerMismatch, error.to_string())
        }
    }
}
