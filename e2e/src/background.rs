//! Programs that run during a test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::error::{E2eError, tail};

/// Bytes of a program's output that are shown in an error.
const MAX_OUTPUT: usize = 2 << 10;

/// A program that ends with the test that started it, for whatever reason the test ends.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Background {
    /// Starts a program; its output goes to a file. The kernel kills it when the calling thread
    /// ends, so that a killed test process leaves none behind.
    pub fn start(program: &Path, arguments: &[String], output: &Path) -> Result<Self, E2eError> {
        let failed = |source| E2eError::Program {
            program: program.display().to_string(),
            source,
        };
        let file = File::create(output).map_err(|source| E2eError::Write {
            path: output.to_owned(),
            source,
        })?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            name: program
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            child,
            output: output.to_owned(),
        })
    }

    /// The last lines of its output.
    pub fn output(&self) -> String {
        tail(&self.whole_output(), MAX_OUTPUT)
    }

    pub(crate) fn whole_output(&self) -> String {
        match std::fs::read(&self.output) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("its output cannot be read: {error}"),
        }
    }

    /// Fails with the end of its output if it has ended.
    pub fn must_run(&mut self) -> Result<(), E2eError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(source) => Err(E2eError::Program {
                program: self.name.clone(),
                source,
            }),
        }
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        // Errors mean that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Asks it to shut down, and fails with the end of its output if it does so with an error.
    pub fn terminate(&mut self) -> Result<(), E2eError> {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        let ended = asked.and_then(|_| self.child.wait());
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.ended(status)),
            Err(source) => Err(E2eError::Program {
                program: self.name.clone(),
                source,
            }),
        }
    }

    fn ended(&self, status: ExitStatus) -> E2eError {
        E2eError::Failed {
            command: self.name.clone(),
            status: status.to_string(),
            stderr: self.output(),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_ended_program_has_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("sh.log");
        let arguments = ["-c".to_owned(), "echo no port is free; exit 7".to_owned()];
        let mut program = Background::start(Path::new("/bin/sh"), &arguments, &output).unwrap();
        program.child.wait().unwrap();
        let error = program.must_run().unwrap_err().to_string();
        assert_eq!(error, "sh ended with exit status: 7: no port is free\n");
    }

    #[test]
    fn a_program_is_killed_with_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("sleep.log");
        let mut program =
            Background::start(Path::new("/bin/sleep"), &["600".to_owned()], &output).unwrap();
        program.must_run().unwrap();
        let id = program.child.id();
        drop(program);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
}
