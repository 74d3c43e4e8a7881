// The peer websocketpp on standalone Asio, one thread without locks: an echo at any path and a short body for GET.
// Usage: websocketpp PORT
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include <websocketpp/concurrency/none.hpp>
#include <websocketpp/config/asio_no_tls.hpp>
#include <websocketpp/server.hpp>

namespace {

// The library's own defaults, except that one thread needs no mutexes: its policy for just that.
struct one_thread : websocketpp::config::asio {
    using base = websocketpp::config::asio;
    using concurrency_type = websocketpp::concurrency::none;
    using elog_type = websocketpp::log::basic<concurrency_type, websocketpp::log::elevel>;
    using alog_type = websocketpp::log::basic<concurrency_type, websocketpp::log::alevel>;

    struct transport_config : base::transport_config {
        using concurrency_type = one_thread::concurrency_type;
        using elog_type = one_thread::elog_type;
        using alog_type = one_thread::alog_type;
        static const bool enable_multithreading = false;
    };
    using transport_type = websocketpp::transport::asio::endpoint<transport_config>;
};

using endpoint = websocketpp::server<one_thread>;
using connection = websocketpp::connection_hdl;

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: websocketpp PORT\n";
        return 2;
    }
    endpoint server;
    server.clear_access_channels(websocketpp::log::alevel::all);
    server.clear_error_channels(websocketpp::log::elevel::all);
    server.init_asio();
    server.set_reuse_addr(true);
    server.set_listen_backlog(4096);
    server.set_tcp_post_init_handler([&server](connection client) {
        websocketpp::lib::asio::error_code ignored;
        server.get_con_from_hdl(client)->get_raw_socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    });
    server.set_message_handler([&server](connection client, endpoint::message_ptr message) {
        // The load generator ends by closing connections.
        websocketpp::lib::error_code ignored;
        server.send(client, message->get_payload(), message->get_opcode(), ignored);
    });
    server.set_http_handler([&server](connection client) {
        const auto answer = server.get_con_from_hdl(client);
        answer->set_status(websocketpp::http::status_code::ok);
        answer->append_header("Content-Type", "text/plain; charset=utf-8");
        answer->set_body("Hello, world!\n");
    });
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[1]));
    server.listen(asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port));
    server.start_accept();
    server.run();
}
