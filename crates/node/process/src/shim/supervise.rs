//! The event loop of a shim.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kubevitals_container_logs::{LogLimits, LogPath, LogWriter, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open};

use super::clients::{Client, Stdin};
use super::fds::{is_temporary, open_nonblocking, open_terminal, set_nonblocking};
use super::protocol::{self, Kind};
use super::record::{
    EXIT_FILE, ExitRecord, Identity, LAUNCH_FILE, Launch, PROCESS_FILE, ProcessRecord, SOCKET_FILE,
    STDIN_FILE, now_ms, read_record, write_record,
};
use super::stage::START_ERROR;

/// Connections at once; more are refused.
const MAX_CLIENTS: usize = 32;
/// Standard input that the program has not read; then its sender waits.
const MAX_STDIN_BYTES: usize = 64 << 10;
/// How long output is read after the end, while processes that keep it open are being killed.
const DRAIN: Duration = Duration::from_secs(2);
/// How long clients have for the last bytes.
const FLUSH: Duration = Duration::from_secs(5);
/// How often orphans are reaped where there is no cgroup.
const REAP: Duration = Duration::from_secs(1);

/// The whole state of a shim.
struct Shim {
    launch: Launch,
    log: Option<LogWriter>,
    listener: UnixListener,
    clients: Vec<Client>,
    /// The outputs of the program: pipes, or the terminal.
    outputs: Vec<(Stream, File)>,
    stdin: Option<Stdin>,
    terminal: Option<File>,
    process: Option<ProcessRecord>,
    exit: Option<ExitRecord>,
    main: Option<Pid>,
}

/// Supervises the container of a folder until it has ended.
pub(super) fn run(program: &[String], folder: &Path) -> ExitCode {
    // A terminal that ends the node must not end the containers.
    let _ = rustix::process::setsid();
    match supervise(program, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let now = now_ms();
            let record = ExitRecord {
                code: i32::from(START_ERROR),
                signal: None,
                oom: false,
                started_ms: None,
                finished_ms: now,
                start_error: Some(format!("shim: {error}")),
            };
            // What has run has a record of its end, or none: it is then unknown.
            if !folder.join(PROCESS_FILE).exists() && !folder.join(EXIT_FILE).exists() {
                let _ = write_record(&folder.join(EXIT_FILE), &record, true);
            }
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn supervise(program: &[String], folder: &Path) -> io::Result<()> {
    // Paths of sockets are limited to 107 bytes; a relative one always fits.
    std::env::set_current_dir(folder)?;
    let launch: Launch = read_record(Path::new(LAUNCH_FILE))?
        .ok_or_else(|| io::Error::other("there is no launch configuration"))?;
    if let Some(cgroup) = &launch.shim_cgroup {
        cgroup.join()?;
    }
    let _ = fs::write("/proc/self/oom_score_adj", "-998");
    if launch.cgroup.is_none() {
        rustix::process::set_child_subreaper(Some(Pid::INIT))?;
    }
    let listener = UnixListener::bind(SOCKET_FILE)?;
    listener.set_nonblocking(true)?;
    let log = match &launch.log {
        Some(plan) => {
            fs::create_dir_all(&plan.folder)?;
            let limits = LogLimits {
                max_bytes: plan.max_bytes,
                max_files: plan.max_files,
            };
            Some(LogWriter::open(
                LogPath::new(&plan.folder, plan.instance),
                limits,
            )?)
        }
        None => None,
    };
    let mut shim = Shim {
        launch,
        log,
        listener,
        clients: Vec::new(),
        outputs: Vec::new(),
        stdin: None,
        terminal: None,
        process: None,
        exit: None,
        main: None,
    };
    match shim.start(program)? {
        Started::Running(child) => shim.serve(child)?,
        Started::Failed(message) => {
            shim.exit = Some(ExitRecord {
                code: i32::from(START_ERROR),
                signal: None,
                oom: false,
                started_ms: None,
                finished_ms: now_ms(),
                start_error: Some(message),
            });
        }
    }
    shim.finish()
}

enum Started {
    Running(Child),
    Failed(String),
}

impl Shim {
    /// Starts the stage, and waits until it has become the program.
    fn start(&mut self, program: &[String]) -> io::Result<Started> {
        let (channel, stage_channel) = UnixStream::pair()?;
        let mut command = match program.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            None => return Err(io::Error::other("the program of the shim is not known")),
        };
        let launch_path = std::env::current_dir()?.join(LAUNCH_FILE);
        let mut launch = self.launch.clone();
        launch.reports = true;
        command
            .args([super::STAGE.as_ref(), launch_path.as_os_str()])
            .stdin(Stdio::from(OwnedFd::from(stage_channel)));
        if launch.tty {
            let terminal = open_terminal()?;
            launch.terminal = Some(terminal.1);
            self.outputs.push((Stream::Stdout, terminal.0.try_clone()?));
            self.terminal = Some(terminal.0);
            command.stdout(Stdio::null()).stderr(Stdio::null());
        } else {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let (read, write) = io::pipe()?;
                let read = File::from(OwnedFd::from(read));
                set_nonblocking(&read)?;
                self.outputs.push((stream, read));
                match stream {
                    Stream::Stdout => command.stdout(write),
                    Stream::Stderr => command.stderr(write),
                };
            }
        }
        // A pipe with a name, since only the three standard descriptors can be passed on. Open for
        // both directions, it does not wait for the other side.
        let mut held_pipe = None;
        if launch.stdin && !launch.tty {
            rustix::fs::mkfifoat(rustix::fs::CWD, STDIN_FILE, Mode::RUSR | Mode::WUSR)?;
            held_pipe = Some(File::options().read(true).write(true).open(STDIN_FILE)?);
        }
        write_record(Path::new(LAUNCH_FILE), &launch, false)?;
        let mut child = command.spawn()?;
        drop(command);
        self.main = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let mut message = String::new();
        channel.take(8 << 10).read_to_string(&mut message)?;
        if !message.is_empty() {
            child.wait()?;
            self.main = None;
            return Ok(Started::Failed(message));
        }
        if held_pipe.is_some() {
            let file = open_nonblocking(Path::new(STDIN_FILE));
            // The program may have ended already.
            self.stdin = file.ok().map(Stdin::new);
        } else if launch.tty && launch.stdin {
            let terminal = self.terminal.as_ref().map(File::try_clone).transpose()?;
            self.stdin = terminal.map(Stdin::new);
        }
        drop(held_pipe);
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let pid = self.main.map_or(0, |pid| pid.as_raw_nonzero().get());
        let record = ProcessRecord {
            // A program that has ended already has no start time any more.
            main: Identity::of(pid).unwrap_or(Identity {
                pid,
                start_ticks: 0,
                boot_id: super::record::boot_id(),
            }),
            shim: Identity::of(own).ok_or_else(|| io::Error::other("/proc is not mounted"))?,
            started_ms: now_ms(),
        };
        write_record(Path::new(PROCESS_FILE), &record, true)?;
        self.process = Some(record);
        self.tell_watchers();
        Ok(Started::Running(child))
    }

    /// Serves clients until the program has ended and its output is read.
    fn serve(&mut self, mut child: Child) -> io::Result<()> {
        let pid = self
            .main
            .ok_or_else(|| io::Error::other("the program has no pid"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            let timeout = self.launch.cgroup.is_none().then_some(REAP);
            let is_over = self.turn(Some(pidfd.as_fd()), timeout)?;
            if self.launch.cgroup.is_none() {
                reap_orphans(pid);
            }
            if is_over {
                break;
            }
        }
        let finished_ms = now_ms();
        let status = child.wait()?;
        self.main = None;
        let (code, signal) = exit_code(status);
        let oom_kills = self
            .launch
            .cgroup
            .as_ref()
            .map_or(0, crate::cgroup::Cgroup::oom_kills);
        self.exit = Some(ExitRecord {
            code,
            signal,
            oom: oom_kills > 0 && code != 0,
            started_ms: self.process.as_ref().map(|one| one.started_ms),
            finished_ms,
            start_error: None,
        });
        self.stdin = None;
        // As the end of a pid namespace: nothing that the program started stays.
        let deadline = Instant::now() + DRAIN;
        while Instant::now() < deadline {
            let is_empty = self.kill_stragglers();
            if self.outputs.is_empty() && is_empty {
                break;
            }
            self.turn(
                None,
                Some(Duration::from_millis(if is_empty { 100 } else { 5 })),
            )?;
        }
        Ok(())
    }

    /// Kills what the program left; returns whether there is nothing.
    fn kill_stragglers(&self) -> bool {
        if let Some(cgroup) = &self.launch.cgroup {
            let is_empty = cgroup.processes().is_empty();
            if !is_empty {
                cgroup.kill_once();
            }
            return is_empty;
        }
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let children = descendants(own);
        for pid in children.iter().copied().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        children.is_empty()
    }

    /// Records the end and tells it.
    fn finish(&mut self) -> io::Result<()> {
        if let Some(log) = self.log.take() {
            let _ = log.finish();
        }
        if let Some(exit) = &self.exit {
            write_record(Path::new(EXIT_FILE), exit, true)?;
        }
        self.tell_watchers();
        // Who connects from now on finds no socket, and reads the record.
        let _ = fs::remove_file(SOCKET_FILE);
        let deadline = Instant::now() + FLUSH;
        self.outputs.clear();
        while self.clients.iter().any(|one| !one.output.is_empty()) && Instant::now() < deadline {
            self.turn(None, Some(Duration::from_millis(100)))?;
        }
        Ok(())
    }

    /// Waits for events and handles them; returns whether the program has ended.
    fn turn(
        &mut self,
        main: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let stdin_is_full = self
            .stdin
            .as_ref()
            .is_some_and(|one| one.held.len() >= MAX_STDIN_BYTES);
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.listener.as_fd(),
            PollFlags::IN,
        )];
        for (_, output) in &self.outputs {
            fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
        }
        for client in &self.clients {
            let mut events = PollFlags::empty();
            if !(client.feeds && stdin_is_full) {
                events |= PollFlags::IN;
            }
            if !client.output.is_empty() {
                events |= PollFlags::OUT;
            }
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), events));
        }
        if let Some(main) = main {
            fds.push(PollFd::from_borrowed_fd(main, PollFlags::IN));
        }
        let has_stdin = self.stdin.as_ref().is_some_and(|one| !one.held.is_empty());
        if has_stdin && let Some(stdin) = &self.stdin {
            fds.push(PollFd::from_borrowed_fd(stdin.file.as_fd(), PollFlags::OUT));
        }
        let timeout = timeout.map(|one| Timespec {
            tv_sec: i64::try_from(one.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: one.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        let accepts = ready.next().unwrap_or(false);
        let outputs: Vec<bool> = ready.by_ref().take(self.outputs.len()).collect();
        let clients: Vec<bool> = ready.by_ref().take(self.clients.len()).collect();
        let is_over = main.is_some() && ready.next().unwrap_or(false);
        self.read_outputs(&outputs);
        for (index, is_ready) in clients.into_iter().enumerate() {
            if is_ready {
                self.serve_client(index);
            }
        }
        if let Some(stdin) = &mut self.stdin
            && !stdin.flush()
        {
            self.stdin = None;
        }
        if accepts {
            self.accept();
        }
        for client in &mut self.clients {
            client.flush();
        }
        self.clients.retain(|client| !client.is_closed);
        Ok(is_over)
    }

    fn read_outputs(&mut self, ready: &[bool]) {
        let mut buffer = [0; 16 << 10];
        let mut ended = Vec::new();
        for (index, (stream, file)) in self.outputs.iter_mut().enumerate() {
            if !ready.get(index).copied().unwrap_or(false) {
                continue;
            }
            match file.read(&mut buffer) {
                Err(error) if is_temporary(&error) => {}
                // A terminal fails once nobody has it open.
                Ok(0) | Err(_) => ended.push(index),
                Ok(count) => {
                    let data = buffer.get(..count).unwrap_or_default();
                    if let Some(log) = &mut self.log {
                        // A full disk must not stop the container.
                        let _ = log.write(*stream, data);
                    }
                    let kind = match stream {
                        Stream::Stdout => Kind::Stdout,
                        Stream::Stderr => Kind::Stderr,
                    };
                    for client in &mut self.clients {
                        let wants = match stream {
                            Stream::Stdout => client.stdout,
                            Stream::Stderr => client.stderr,
                        };
                        if wants {
                            client.send(kind, data);
                        }
                    }
                }
            }
        }
        for index in ended.into_iter().rev() {
            self.outputs.remove(index);
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= MAX_CLIENTS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.clients.push(Client::new(stream));
        }
    }

    fn serve_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        client.read();
        loop {
            let Some(client) = self.clients.get_mut(index) else {
                return;
            };
            match protocol::decode(&mut client.input) {
                Ok(Some((kind, payload))) => self.handle(index, kind, &payload),
                Ok(None) => break,
                Err(protocol::BadFrame) => {
                    client.is_closed = true;
                    break;
                }
            }
        }
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if client.is_closed && client.feeds && self.launch.stdin_once {
            self.end_stdin();
        }
    }

    fn handle(&mut self, index: usize, kind: Kind, payload: &[u8]) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        match (kind, payload) {
            (Kind::Watch, _) => {
                client.watches = true;
                client.report(self.process.as_ref(), self.exit.as_ref());
            }
            (Kind::Attach, [stdout, stderr]) => {
                client.stdout = *stdout != 0;
                client.stderr = *stderr != 0;
            }
            (Kind::Signal, [number]) => {
                if let (Some(pid), Some(signal)) = (self.main, signal_of(*number)) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
            (Kind::Stdin, data) => {
                client.feeds = true;
                if let Some(stdin) = &mut self.stdin {
                    stdin.held.extend(data);
                }
            }
            (Kind::StdinEnd, _) if self.launch.stdin_once => self.end_stdin(),
            (Kind::Resize, [w0, w1, h0, h1]) => {
                if let Some(terminal) = &self.terminal {
                    let size = rustix::termios::Winsize {
                        ws_row: u16::from_be_bytes([*h0, *h1]),
                        ws_col: u16::from_be_bytes([*w0, *w1]),
                        ws_xpixel: 0,
                        ws_ypixel: 0,
                    };
                    let _ = rustix::termios::tcsetwinsize(terminal, size);
                }
            }
            _ => {}
        }
    }

    fn end_stdin(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            if self.terminal.is_some() {
                // The end of input of a terminal is a character.
                stdin.held.push_back(4);
            } else {
                stdin.is_ending = true;
            }
        }
    }

    fn tell_watchers(&mut self) {
        for client in &mut self.clients {
            if client.watches {
                client.report(self.process.as_ref(), self.exit.as_ref());
            }
        }
    }
}

fn exit_code(status: std::process::ExitStatus) -> (i32, Option<i32>) {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => (code, None),
        (None, Some(signal)) => (128 + signal, Some(signal)),
        (None, None) => (255, None),
    }
}

fn signal_of(number: u8) -> Option<Signal> {
    [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::KILL,
        Signal::USR1,
        Signal::USR2,
        Signal::TERM,
    ]
    .into_iter()
    .find(|signal| signal.as_raw() == i32::from(number))
}

/// Reaps children that are not the main process.
fn reap_orphans(main: Pid) {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    for pid in children_of(own).into_iter().filter_map(Pid::from_raw) {
        if pid != main {
            let _: Result<Option<(Pid, WaitStatus)>, _> =
                rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn children_of(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map(|text| {
            text.split_ascii_whitespace()
                .filter_map(|one| one.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children_of(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children_of(pid));
        next += 1;
        if found.len() > 100_000 {
            break;
        }
    }
    found
}
