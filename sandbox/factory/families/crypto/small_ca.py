"""A script that keeps a small certificate authority with openssl: it founds one and issues certificates.

Hard: names, uses, dates and numbers of a certificate are set in different places, and each must hold for any name.
"""

import os

from sandbox.factory.kit import hidden, put, run, scratch, word, words

SKILLS = ("openssl", "X.509", "bash", "certificates")
BINARIES = ("openssl",)

KEYS = {
    "prime256v1": "-algorithm EC -pkeyopt ec_paramgen_curve:prime256v1",
    "secp384r1": "-algorithm EC -pkeyopt ec_paramgen_curve:secp384r1",
    "Ed25519": "-algorithm ED25519",
}
USES = {
    "serverAuth": "TLS Web Server Authentication",
    "clientAuth": "TLS Web Client Authentication",
    "codeSigning": "Code Signing",
}
# A term: what is said, the solution's lines before and after a certificate is made, and lines of its extensions.
TERMS = {
    "names": ("It has the DNS names NAME and all OTHERs as subject alternative names, and no others.", "", "", "subjectAltName=$alt"),
    "uses": ("Its extended key usage is {use} and nothing else.", "", "", "extendedKeyUsage={use}"),
    "leaf": ("It says in its basic constraints that it is no CA.", "", "", "basicConstraints=critical,CA:FALSE"),
    "chain": ("DIR/NAME.chain has its text (PEM) followed by that of the authority's certificate.", "", 'cat "$name.crt" ca.crt > "$name.chain"', ""),
    "again": ("If DIR/NAME.crt is there already, nothing is changed and the exit code is {code}.", '[ ! -e "$name.crt" ] || exit {code}', "", ""),
    "index": ("A line `SERIAL NAME` is appended to DIR/{index}, with its serial number in hexadecimal as openssl prints it (capital letters).", "", 'echo "$(openssl x509 -noout -serial -in "$name.crt" | cut -d = -f 2) $name" >> {index}', ""),
    "modes": ("All files in DIR whose names end in .key have the mode {mode}.", "", "chmod {mode} *.key", ""),
    "clean": ("DIR has no files but ca.key, ca.crt, those named here and those of earlier calls.", "", 'rm -f "$name.csr" ca.srl', ""),
}  # fmt: skip


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), 1 + level))
    return {
        "script": f"{word(rng)}.sh",
        "cases": [name for name in TERMS if name in terms],
        "key": rng.choice(list(KEYS)),
        "use": rng.choice(list(USES)),
        "days": rng.choice([30, 90, 397]),
        "years": rng.choice([5, 10]),
        "code": rng.choice([3, 17]),
        "index": f"{word(rng)}.txt",
        "mode": rng.choice(["600", "400"]),
        "organisation": word(rng).title(),
        "subject": rng.choice(["O then CN", "CN then O", "CN alone"]),
        "ca": word(rng).title(),
        "host": f"{word(rng)}.example",
        "others": [f"{name}.example" for name in words(rng, 2)],
    }


def files(rng, p):
    return {"hosts.txt": f"{p.host} {' '.join(p.others)}\n"}


def instruction(p):
    subject = {
        "O then CN": f"the organisation (O) {p.organisation}, then the common name (CN) NAME",
        "CN then O": f"the common name (CN) NAME, then the organisation (O) {p.organisation}",
        "CN alone": "the common name (CN) NAME alone",
    }[p.subject]
    terms = "\n".join(f"- {TERMS[name][0].format(**vars(p))}" for name in p.cases)
    text = (
        f"`bash /app/{p.script} found DIR` makes the folder DIR with the key DIR/ca.key and a self-signed certificate DIR/ca.crt of a CA with the common name {p.ca}, valid for {p.years * 365} days. "
        f"`bash /app/{p.script} issue DIR NAME OTHER...` makes DIR/NAME.key and DIR/NAME.crt, a certificate from that CA, valid for {p.days} days from now on; there may be no OTHER. Its subject is {subject}. All keys are {p.key} keys without a passphrase, and all files are PEM. Of each certificate that is issued, this holds:\n{terms}"
    )
    todo = (
        "found an authority in /app/ca, and issue a certificate for the NAME and the OTHERs in /app/hosts.txt"
    )
    return [
        f"Write a bash script, /app/{p.script}, that is a small certificate authority by means of openssl. {text}\n\nThen {todo}.",
        f"We need certificates for our test machines. {text}\n\nPlease write the script, {todo}; other machines will follow.",
        f"/app/{p.script} (bash, with openssl) shall found authorities and issue certificates. {text}\n\nWhen it works, {todo} with it.",
    ]


def program(p):
    before = [TERMS[name][1].format(**vars(p)) for name in p.cases if TERMS[name][1]]
    after = [TERMS[name][2].format(**vars(p)) for name in p.cases if TERMS[name][2]]
    extensions = [TERMS[name][3].format(**vars(p)) for name in p.cases if TERMS[name][3]]
    subject = {
        "O then CN": f"/O={p.organisation}/CN=$name",
        "CN then O": f"/CN=$name/O={p.organisation}",
        "CN alone": "/CN=$name",
    }[p.subject]
    config = "[req]\\ndistinguished_name=d\\nx509_extensions=v\\n[d]\\n[v]\\nbasicConstraints=critical,CA:TRUE\\nsubjectKeyIdentifier=hash\\n"
    quoted = " ".join(f'"{line}"' for line in extensions)
    sign = (
        f'openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days {p.days} -out "$name.crt"'
        + (f" -extfile <(printf '%s\\n' {quoted})" if extensions else "")
    )
    return "\n".join([
        "#!/bin/bash", "exec 2> /dev/null", 'if [ "$1" = found ]; then', '  mkdir -p "$2" && cd "$2"', f"  openssl genpkey {KEYS[p.key]} -out ca.key",
        f"  openssl req -x509 -new -key ca.key -subj /CN={p.ca} -days {p.years * 365} -out ca.crt -config <(printf '{config}')",
        *(f"  {line}" for line in after if line.startswith("chmod")), "else", '  cd "$2" && name=$3 && shift 3', *(f"  {line}" for line in before),
        '  alt=DNS:$name; for other; do alt=$alt,DNS:$other; done', f'  openssl genpkey {KEYS[p.key]} -out "$name.key"',
        f"  openssl req -new -key \"$name.key\" -subj \"{subject}\" -out \"$name.csr\" -config <(printf '{config}')", f"  {sign}", *(f"  {line}" for line in after), "fi", "exit 0",
    ])  # fmt: skip


def solution(p):
    return [
        "cat hosts.txt",
        put(p.script, program(p)),
        f"bash {p.script} found ca",
        f"bash {p.script} issue ca $(cat hosts.txt)",
        f"openssl x509 -noout -text -in ca/{p.host}.crt | head -n 20; ls -l ca",
    ]


def lazy(p):
    return [
        *solution(p),
        put(
            p.script,
            f"mkdir -p $2; cp -a /app/ca/. $2; cp $2/{p.host}.crt $2/$3.crt; cp $2/{p.host}.key $2/$3.key",
        ),
    ]


CA: list = []


def authority(p):
    """A hidden authority with two certificates, founded once: (folder, names of each, what the calls and openssl say)."""
    if not CA:
        rng = hidden(p)
        folder = scratch({"x": ""}) + "/my ca"
        call = lambda *words: run("bash", f"/app/{p.script}", *words, ok=False, cwd="/usr").returncode  # noqa: E731
        found = call("found", folder)
        issued = []
        for count in (2, 0):
            name, *others = (f"{w}.example" for w in words(rng, 1 + count))
            issued.append((name, others, call("issue", folder, name, *others), shown(f"{folder}/{name}.crt")))
        CA.append((folder, issued, found))
    return CA[0]


def shown(path):
    extensions = ["-ext", "subjectAltName,extendedKeyUsage,basicConstraints"]
    return run(
        "openssl",
        "x509",
        "-noout",
        "-subject",
        "-nameopt",
        "RFC2253",
        "-serial",
        "-pubkey",
        *extensions,
        "-in",
        path,
        ok=False,
    ).stdout


def subject(p, name):
    """As RFC 2253 writes it: the last part first."""
    return {
        "O then CN": f"CN={name},O={p.organisation}",
        "CN then O": f"O={p.organisation},CN={name}",
        "CN alone": f"CN={name}",
    }[p.subject]


def test_hidden_certificates(p):
    folder, issued, found = authority(p)
    assert found == 0
    for name, _, code, text in issued:
        assert code == 0 and f"subject={subject(p, name)}" in text.replace("subject= ", "subject=")
        assert (
            run("openssl", "verify", "-CAfile", "ca.crt", f"{name}.crt", cwd=folder, ok=False).returncode == 0
        )
        assert run("openssl", "pkey", "-in", f"{name}.key", "-pubout", cwd=folder).stdout in text


def test_hidden_days(p):
    folder, issued, _ = authority(p)
    for name, days in (("ca", p.years * 365), (issued[0][0], p.days)):
        ends = [
            run(
                "openssl",
                "x509",
                "-noout",
                "-checkend",
                str(days * 86400 + hours * 3600),
                "-in",
                f"{name}.crt",
                cwd=folder,
                ok=False,
            )
            for hours in (-3, 3)
        ]
        assert [done.returncode for done in ends] == [0, 1] and "expire" in ends[0].stdout


def test_hidden_keys(p):
    folder, issued, _ = authority(p)
    text = run("openssl", "pkey", "-in", f"{issued[0][0]}.key", "-noout", "-text", cwd=folder).stdout
    assert p.key.lower() in text.lower()
    with open(f"{folder}/{issued[1][0]}.key") as file:
        assert (
            "ENCRYPTED" not in file.read()
            and issued[0][3].split("PUBLIC KEY")[1] != issued[1][3].split("PUBLIC KEY")[1]
        )


def test_hidden_term(p, case):
    folder, issued, _ = authority(p)
    for name, others, code, text in issued:
        assert code == 0 and subject(p, name) in text
        lines = [line.strip() for line in text.split("\n")]
        if case == "names":
            row = next(line for line in lines if line.startswith("DNS:"))
            assert sorted(row.split(", ")) == sorted(f"DNS:{n}" for n in (name, *others))
        elif case == "uses":
            assert USES[p.use] in lines
        elif case == "leaf":
            assert "CA:FALSE" in lines
        elif case == "chain":
            assert load(f"{folder}/{name}.chain") == load(f"{folder}/{name}.crt") + load(f"{folder}/ca.crt")
        elif case == "again":
            before = load(f"{folder}/{name}.crt"), load(f"{folder}/{name}.key")
            done = run("bash", f"/app/{p.script}", "issue", folder, name, ok=False)
            assert done.returncode == p.code and before == (
                load(f"{folder}/{name}.crt"),
                load(f"{folder}/{name}.key"),
            )
        elif case == "index":
            serial = next(line for line in lines if line.startswith("serial=")).partition("=")[2]
            assert f"{serial} {name}" in load(f"{folder}/{p.index}").split("\n")
        elif case == "modes":
            assert {oct(os.stat(f"{folder}/{n}.key").st_mode)[-3:] for n in ("ca", name)} == {p.mode}
        else:
            good = {"ca.key", "ca.crt", *[p.index] * ("index" in p.cases)}
            endings = ["key", "crt", *["chain"] * ("chain" in p.cases)]
            assert set(os.listdir(folder)) <= good | {f"{n}.{end}" for n, *_ in issued for end in endings}


def load(path):
    with open(path) as file:
        return file.read()


def test_app(p):
    text = shown(f"/app/ca/{p.host}.crt")
    assert subject(p, p.host) in text
    assert (
        run("openssl", "verify", "-CAfile", "ca.crt", f"{p.host}.crt", cwd="/app/ca", ok=False).returncode
        == 0
    )
