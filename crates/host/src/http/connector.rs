//! A connection that another thread can close while a request waits for it.
//!
//! Owns the sockets of requests. Does not know their content; encryption is put on top.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
};

use crate::cancel_token::CancelToken;

/// Opens connections that are closed when a token is cancelled.
#[derive(Debug)]
pub(super) struct CancellableConnector {
    pub stop: Option<Arc<CancelToken>>,
}

impl Connector<()> for CancellableConnector {
    type Out = CancellableSocket;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<CancellableSocket>, Error> {
        let begun = Instant::now();
        let whole = details.timeout.not_zero().map(|time| *time);
        let mut last = Error::HostNotFound;
        for (tried, address) in details.addrs.iter().enumerate() {
            // The remaining time is divided equally among the remaining addresses.
            let left = whole.map(|whole| whole.saturating_sub(begun.elapsed()));
            let shares = u32::try_from(details.addrs.len() - tried).unwrap_or(1);
            let time = left.map(|left| (left / shares).max(Duration::from_millis(10)));
            let opened = match time {
                Some(time) => TcpStream::connect_timeout(address, time),
                None => TcpStream::connect(address),
            };
            match opened {
                Ok(stream) => return self.wrap_stream(stream, details).map(Some),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    last = Error::Timeout(details.timeout.reason);
                }
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }
}

impl CancellableConnector {
    fn wrap_stream(&self, stream: TcpStream, details: &ConnectionDetails<'_>) -> Result<CancellableSocket, Error> {
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        if let Some(stop) = &self.stop {
            let known = Arc::downgrade(&stream);
            stop.call_on_cancel(move || {
                // A closed connection needs no shutdown.
                let _ = known.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
            });
        }
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(CancellableSocket { stream, buffers })
    }
}

pub(super) struct CancellableSocket {
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for CancellableSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancellableSocket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

fn classify_io_error(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

impl Transport for CancellableSocket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let output = &self.buffers.output()[..amount];
        (&*self.stream).write_all(output).map_err(|error| classify_io_error(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let amount =
            (&*self.stream).read(self.buffers.input_append_buf()).map_err(|error| classify_io_error(error, timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Input without a request means that the connection is at its end.
        let mut one = [0];
        let quiet = self.stream.set_nonblocking(true).is_ok()
            && matches!(self.stream.peek(&mut one), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok()
    }
}
