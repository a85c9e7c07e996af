//! Requests to an object store, and its answers.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path as FilePath;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig};
use tokio::runtime::Runtime;

use super::http::Connector;
use super::{Location, ObjectsError, Vendor};
use crate::file::io_at;
use crate::record::plain;

/// Longer files are sent in parts of this size: so much of a file is in memory. A file that a capture has
/// finished for a store is shorter.
const PART: usize = 24 << 20;

/// A hiccup is no failure. Whoever wants a thing for longer asks again.
const RETRIES: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    },
    max_retries: 2,
    retry_timeout: Duration::from_secs(60),
};

/// One prefix of a store. Each call waits for its answer.
pub(super) struct Client {
    location: Location,
    prefix: Path,
    store: Box<dyn ObjectStore>,
    runtime: Runtime,
    /// For each thing that is asked, with what is tried again.
    limit: Cell<Duration>,
}

impl Client {
    /// With what the environment says of accounts. Nothing is sent yet.
    pub(super) fn open(location: &Location) -> Result<Self, ObjectsError> {
        let failed = |error: &dyn std::error::Error| ObjectsError::Store {
            object: location.to_string(),
            words: words(error),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        Ok(Self {
            prefix: Path::parse(&location.prefix).map_err(|error| failed(&error))?,
            store: store_of(location).map_err(|error| failed(&error))?,
            location: location.clone(),
            runtime,
            limit: Cell::new(Duration::MAX),
        })
    }

    /// Nothing that is asked from now on takes longer.
    pub(super) fn limit(&self, limit: Duration) {
        self.limit.set(limit);
    }

    /// Waits for an answer.
    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.limit.get();
        let late = || Error::Generic {
            store: "object store",
            source: format!("no answer within {limit:?}").into(),
        };
        let answered = async { tokio::time::timeout(limit, asked).await };
        self.runtime.block_on(answered).unwrap_or_else(|_| Err(late()))
    }

    /// What is directly below the prefix, with its sizes.
    pub(super) fn list(&self) -> Result<Vec<(String, u64)>, ObjectsError> {
        let listing = self.store.list_with_delimiter(Some(&self.prefix));
        let found = self.wait(listing);
        let found = found.map_err(|error| self.failed("", &error))?;
        let named = found.objects.into_iter();
        Ok(named
            .filter_map(|object| Some((object.location.filename()?.to_owned(), object.size)))
            .collect())
    }

    pub(super) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ObjectsError> {
        let path = self.path(name);
        let put = self.store.put(&path, PutPayload::from(bytes));
        let put = self.wait(put);
        put.map_err(|error| self.failed(name, &error))?;
        Ok(())
    }

    /// False where there is such an object already.
    pub(super) fn put_new(&self, name: &str, bytes: Vec<u8>) -> Result<bool, ObjectsError> {
        let path = self.path(name);
        let put = self
            .store
            .put_opts(&path, PutPayload::from(bytes), PutMode::Create.into());
        match self.wait(put) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Puts a whole file of the disk.
    pub(super) fn put_file(&self, name: &str, path: &FilePath) -> Result<u64, ObjectsError> {
        let mut file = File::open(path).map_err(io_at(path))?;
        let mut next = || -> Result<Bytes, ObjectsError> {
            let mut part = Vec::new();
            let read = (&mut file).take(PART as u64).read_to_end(&mut part);
            read.map_err(io_at(path))?;
            Ok(part.into())
        };
        let first = next()?;
        if first.len() < PART {
            let len = first.len() as u64;
            return self.put(name, first.into()).map(|()| len);
        }
        self.runtime.block_on(async {
            let path = self.path(name);
            let failed = |error| self.failed(name, &error);
            let mut upload = self.store.put_multipart(&path).await.map_err(failed)?;
            let (mut part, mut len) = (first, 0);
            while !part.is_empty() {
                len += part.len() as u64;
                let sent = upload.put_part(PutPayload::from(part)).await;
                let following = sent.map_err(failed).and_then(|()| next());
                part = match following {
                    Ok(part) => part,
                    Err(error) => {
                        // Parts that belong to nothing cost money. What goes wrong here went wrong before.
                        let _ = upload.abort().await;
                        return Err(error);
                    }
                };
            }
            upload.complete().await.map_err(failed)?;
            Ok(len)
        })
    }

    /// A whole object of at most so many bytes; `None` where it is not there.
    pub(super) fn get_small(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, ObjectsError> {
        let path = self.path(name);
        let got = self.wait(async {
            let found = self.store.get(&path).await?;
            match found.meta.size > max {
                true => Ok(None),
                false => found.bytes().await.map(Some),
            }
        });
        match got {
            Ok(Some(bytes)) => Ok(Some(bytes.to_vec())),
            Ok(None) => Err(ObjectsError::Wrong {
                object: self.object(name),
                why: format!("it has more than {max} bytes"),
            }),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// A part of an object.
    pub(super) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectsError> {
        let path = self.path(name);
        let got = self.wait(self.store.get_range(&path, range));
        got.map(Into::into).map_err(|error| self.failed(name, &error))
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn object(&self, name: &str) -> String {
        match name {
            "" => self.location.to_string(),
            name => format!("{}/{name}", self.location),
        }
    }

    fn failed(&self, name: &str, error: &Error) -> ObjectsError {
        let (object, words) = (self.object(name), words(error));
        match error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                ObjectsError::Refused { object, words }
            }
            _ => ObjectsError::Store { object, words },
        }
    }
}

fn store_of(location: &Location) -> Result<Box<dyn ObjectStore>, Error> {
    let bucket = &location.bucket;
    Ok(match location.vendor {
        Vendor::Amazon => Box::new(
            AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_retry(RETRIES)
                .with_http_connector(Connector)
                .build()?,
        ),
        Vendor::Google => Box::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_retry(RETRIES)
                .with_http_connector(Connector)
                .build()?,
        ),
        Vendor::Azure => Box::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_retry(RETRIES)
                .with_http_connector(Connector)
                .build()?,
        ),
    })
}

/// The longest error, in letters. A store may answer with a whole page, which is part of its error.
const WORDS_MAX: usize = 600;

/// An error and what has caused it, on one line. Each says that of those below it, or does not.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    plain(line.as_bytes(), WORDS_MAX)
}
