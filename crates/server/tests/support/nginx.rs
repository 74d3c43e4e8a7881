//! Debian's nginx, on ports of the test and in a temporary folder.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{free_address, until};

pub(crate) struct Nginx {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Starts nginx. `http` gets nginx's address and folder, and returns the content of the `http`
    /// block. `files` are paths below the folder and their contents.
    pub(crate) fn start(
        http: impl FnOnce(SocketAddr, &Path) -> String,
        files: &[(&str, &str)],
    ) -> Self {
        Self::run(files, "", |address, folder| {
            let shown = folder.display();
            format!(
                "http {{
                  access_log off; client_body_temp_path {shown}/a; proxy_temp_path {shown}/b;
                  fastcgi_temp_path {shown}/c; uwsgi_temp_path {shown}/d; scgi_temp_path {shown}/e;
                  {}
                }}",
                http(address, folder)
            )
        })
    }

    /// Starts a TCP proxy; `stream` returns the complete `stream` block.
    pub(crate) fn passing(stream: impl FnOnce(SocketAddr) -> String) -> Self {
        let module = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;";
        Self::run(&[], module, |address, _| stream(address))
    }

    fn run(
        files: &[(&str, &str)],
        modules: &str,
        blocks: impl FnOnce(SocketAddr, &Path) -> String,
    ) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let address = free_address();
        let folder =
            std::env::temp_dir().join(format!("veche-nginx-{}-{number}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("the folder")).expect("a folder");
            std::fs::write(path, text).expect("written");
        }
        std::fs::create_dir_all(&folder).expect("a folder");
        let shown = folder.display();
        let config = format!(
            "{modules} daemon off; master_process off; pid {shown}/pid; error_log {shown}/error;
            events {{ worker_connections 512; }}
            {}",
            blocks(address, &folder)
        );
        std::fs::write(folder.join("nginx.conf"), config).expect("written");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&folder).arg("-c").arg("nginx.conf");
        command.arg("-e").arg(folder.join("error"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        let nginx = Self {
            child: child.expect("nginx, which `make setup` installs"),
            folder,
            address,
        };
        until("nginx", || TcpStream::connect(address).is_ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
