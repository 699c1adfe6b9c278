//! Just enough of Redis' protocol to command a server from outside, without a client library in between.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a Redis server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A text, a status or a bulk.
    Text(String),
    /// A number.
    Number(i64),
    /// Several.
    List(Vec<Reply>),
    /// Nothing.
    Nil,
    /// A refusal, in the server's words.
    Error(String),
}

impl Reply {
    /// The text in it; of anything else, how it prints.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Error(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }
}

/// A connection for commands; one at a time.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to a server on this machine.
    ///
    /// # Errors
    /// When it does not answer within `limit`.
    pub fn open(port: u16, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command, and waits for what the server says.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut sent = format!("*{}\r\n", words.len());
        for word in words {
            sent.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(sent.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bulk = vec![0; length + 2];
                    self.stream.read_exact(&mut bulk)?;
                    bulk.truncate(length);
                    Reply::Text(String::from_utf8_lossy(&bulk).into_owned())
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::List((0..length).map(|_| self.reply()).collect::<io::Result<_>>()?),
            },
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}
