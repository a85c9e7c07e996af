# The steps of script/test, one at a time. `just` lists them; CI runs `.ci/run`.

_default:
    @just --list

# Everything, with the clients of other languages
all:
    script/test --clients

# Format the code
fmt:
    cargo fmt

# Format check, clippy and the architecture's own checks
lint:
    script/test fmt clippy tidy

# Unit and property tests
unit *arguments:
    cargo test --workspace --exclude e2e {{arguments}}

# Documentation of the code, private items included
doc:
    script/test doc

# Every fuzz target for some seconds
fuzz seconds="10":
    script/fuzz {{seconds}}

# End to end on one kind of server: mariadb or mysql
e2e server="mariadb":
    script/test e2e_{{server}}

# sysbench through the gateway
sysbench:
    script/test sysbench

# Clients of other languages
clients:
    script/test clients

# Real servers, the gateway, a load, live figures
demo *arguments:
    script/demo {{arguments}}

# What the gateway costs, beside HAProxy
bench *arguments:
    cargo run --release --package forebay -- bench overhead {{arguments}}
