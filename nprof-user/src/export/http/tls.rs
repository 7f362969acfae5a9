//! TLS: from the files to what accepts connections.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};

use super::{Error, TlsFiles};
use crate::sys::small_file;

/// Speaks TLS 1.2 and 1.3 with the certificate and the key of `files`.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let (chain, key) = (chain(&files.cert)?, key(&files.key)?);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|source| unusable(files, source))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = small_file::read(path)?;
    // What the parser says is dropped here and below: it quotes the file.
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) | Err(_) => Err(Error::NotPem { path: path.to_path_buf(), what: "certificate" }),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let pem = small_file::read_secret(path)?;
    PrivateKeyDer::from_pem_slice(&pem)
        .or(Err(Error::NotPem { path: path.to_path_buf(), what: "unencrypted private key" }))
}

fn unusable(files: &TlsFiles, source: rustls::Error) -> Error {
    let TlsFiles { cert, key } = files.clone();
    match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Error::KeyMismatch { cert, key },
        source => Error::Tls { cert, key, source },
    }
}
