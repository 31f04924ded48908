// The masks of private runs, from docs/reference/protocol-private.md alone: node private_vectors.mjs masks.json
import assert from "node:assert/strict";
import { createCipheriv, createHash, createHmac, createPrivateKey, createPublicKey, diffieHellman } from "node:crypto";
import { readFileSync } from "node:fs";

const given = JSON.parse(readFileSync(process.argv[2], "utf8"));
const hash = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
const hmac = (key, ...parts) => createHmac("sha256", key).update(Buffer.concat(parts)).digest();
const label = (text) => Buffer.from(text + "\0", "ascii");
const hex = (text) => Buffer.from(text, "hex");

// msgpack: maps in the order of their keys, the shortest form of each number, text and list
function head(size, fixed, most, codes) {
  if (size <= most) return Buffer.from([fixed | size]);
  const width = size < 256 && codes[0] ? 1 : size < 65536 ? 2 : 4;
  const out = Buffer.alloc(1 + width);
  out[0] = codes[Math.log2(width)];
  out.writeUIntBE(size, 1, width);
  return out;
}

function encode(value) {
  if (Buffer.isBuffer(value)) return Buffer.concat([head(value.length, 0, -1, [0xc4, 0xc5, 0xc6]), value]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === "number") return head(value, 0, 127, [0xcc, 0xcd, 0xce]);
  if (typeof value === "string") {
    const bytes = Buffer.from(value, "utf8");
    return Buffer.concat([head(bytes.length, 0xa0, 31, [0xd9, 0xda, 0xdb]), bytes]);
  }
  if (Array.isArray(value)) return Buffer.concat([head(value.length, 0x90, 15, [0, 0xdc, 0xdd]), ...value.map(encode)]);
  const names = Object.keys(value).sort();
  const entries = names.flatMap((name) => [encode(name), encode(value[name])]);
  return Buffer.concat([head(names.length, 0x80, 15, [0, 0xde, 0xdf]), ...entries]);
}

// X25519 keys as node takes them: the bytes behind the fixed beginning of their DER form
const secretKey = (bytes) =>
  createPrivateKey({ key: Buffer.concat([hex("302e020100300506032b656e04220420"), bytes]), format: "der", type: "pkcs8" });
const publicKey = (bytes) =>
  createPublicKey({ key: Buffer.concat([hex("302a300506032b656e032100"), bytes]), format: "der", type: "spki" });
const publicBytes = (secret) => createPublicKey(secret).export({ format: "der", type: "spki" }).subarray(-32);

const ids = Object.keys(given.secrets).sort();
const secrets = Object.fromEntries(ids.map((id) => [id, secretKey(hex(given.secrets[id]))]));
const keys = Object.fromEntries(ids.map((id) => [id, publicBytes(secrets[id])]));
for (const id of ids) assert.equal(keys[id].toString("hex"), given.public_keys[id]);

const { group, edition: number, renews } = given;
const terms = hash(label("glassfleet-terms/1"), encode(given.terms));
assert.equal(terms.toString("hex"), given.terms_digest);
const founders = ids.map((id) => {
  const said = given.founders[id];
  return { ...said, agent: id, key: keys[id], totals: said.totals.map(hex), heard: said.heard.map(hex) };
});
const roster = hash(label("glassfleet-roster/1"), encode([terms, group, founders, renews]));
assert.equal(roster.toString("hex"), given.roster_digest);
const anchors = founders.map((each) => each.anchor).filter((text) => text !== "");
assert.equal(anchors.length ? anchors.sort()[0] : given.roster_digest.slice(0, 16), given.anchor);
const members = founders.map((each) => {
  const rows = renews && each.new_rows ? [each.new_rows, each.new_tests] : [each.rows, each.tests];
  return [each.agent, each.era, ...rows];
});
const total = hash(label("glassfleet-total/1"), encode({ founders: members, members: ids.map((_, place) => place) }));
assert.deepEqual(ids.map((_, place) => place), given.total.members);
assert.equal(total.toString("hex"), given.total.digest);
const edition = hash(label("glassfleet-edition/1"), encode([roster, number, ids]));
assert.equal(edition.toString("hex"), given.edition_digest);
const task = hex(given.task_digest);
const shapes = Object.entries(given.layout.shapes).sort(([one], [other]) => (one < other ? -1 : 1));
const layout = hash(encode({ kind: given.layout.kind, shapes }));
assert.equal(layout.toString("hex"), given.layout.digest);
assert.equal(hash(label("glassfleet-question/1"), edition, task, layout).toString("hex"), given.question);

const pairKey = (own, other) => {
  const shared = diffieHellman({ privateKey: secrets[own], publicKey: publicKey(keys[other]) });
  return hmac(hash(label("glassfleet-pair/1"), terms), shared);
};
const streamKey = (own, other) => {
  const [lower, higher] = [own, other].sort().map((id) => Buffer.from(id));
  const length = Buffer.from([lower.length >> 8, lower.length & 255]);
  return hmac(pairKey(own, other), label("glassfleet-mask/1"), edition, task, length, lower, higher);
};
const stream = (key, size) => {
  const bytes = createCipheriv("chacha20", key, Buffer.alloc(16)).update(Buffer.alloc(8 * size));
  return Array.from({ length: size }, (_, place) => bytes.readBigUInt64LE(8 * place));
};
assert.equal(pairKey("tram", "v03").toString("hex"), given.pair_key_tram_v03);
assert.equal(streamKey("v03", "tram").toString("hex"), given.stream_key_tram_v03);
const size = given.sum.length;
assert.deepEqual(stream(streamKey("tram", "v03"), size).map(String), given.stream_tram_v03);

const sum = new BigUint64Array(size);
for (const own of ids) {
  const words = new BigUint64Array(given.vectors[own].map((value) => BigInt.asUintN(64, BigInt(value))));
  for (const other of ids.filter((id) => id !== own)) {
    const sign = own < other ? 1n : -1n;
    stream(streamKey(own, other), size).forEach((word, place) => (words[place] += sign * word));
  }
  assert.deepEqual([...words].map(String), given.answers[own]);
  words.forEach((word, place) => (sum[place] += word));
}
assert.deepEqual([...sum].map((word) => Number(BigInt.asIntN(64, word))), given.sum);
console.log("all equal");
