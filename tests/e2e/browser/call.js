// One call between two RTCPeerConnections of this page, both allowed to use nothing but the relay. Everything
// a test has to know comes back as one object; nothing is judged here.

const CHUNK_BYTES = 16 * 1024;
const HIGH_WATER_BYTES = 256 * 1024;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function withTimeout(promise, ms, what) {
  const timeout = sleep(ms).then(() => {
    throw new Error(`${what}: not within ${ms} ms`);
  });
  return Promise.race([promise, timeout]);
}

const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");

function randomBytes(n) {
  const bytes = new Uint8Array(n);
  for (let at = 0; at < n; at += 65536) {
    crypto.getRandomValues(bytes.subarray(at, Math.min(n, at + 65536)));
  }
  return bytes;
}

// Sends bytes with the buffer kept short, and gives their hash.
async function sendAll(channel, bytes) {
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    while (channel.bufferedAmount > HIGH_WATER_BYTES) {
      await sleep(5);
    }
    channel.send(bytes.subarray(at, at + CHUNK_BYTES));
  }
  return hex(await crypto.subtle.digest("SHA-256", bytes));
}

// Gathers n bytes from the channel, and gives their hash.
function receiveAll(channel, n) {
  const bytes = new Uint8Array(n);
  let at = 0;
  return new Promise((resolve, reject) => {
    channel.addEventListener("message", (event) => {
      const chunk = new Uint8Array(event.data);
      if (at + chunk.length > n) {
        reject(new Error("more bytes than were sent"));
        return;
      }
      bytes.set(chunk, at);
      at += chunk.length;
      if (at === n) {
        resolve(crypto.subtle.digest("SHA-256", bytes).then(hex));
      }
    });
  });
}

function connection(iceServers, log, name) {
  const pc = new RTCPeerConnection({ iceServers, iceTransportPolicy: "relay" });
  const note = (text) => log.push(`${Math.round(performance.now())} ${name}: ${text}`);
  pc.addEventListener("icecandidate", (e) => note(`candidate ${e.candidate ? e.candidate.candidate : "(end)"}`));
  pc.addEventListener("icecandidateerror", (e) => note(`candidate error ${e.errorCode} ${e.errorText} ${e.url}`));
  pc.addEventListener("iceconnectionstatechange", () => note(`ice ${pc.iceConnectionState}`));
  pc.addEventListener("connectionstatechange", () => note(`connection ${pc.connectionState}`));
  return pc;
}

function exchangeCandidates(a, b) {
  a.addEventListener("icecandidate", (e) => e.candidate && b.addIceCandidate(e.candidate));
  b.addEventListener("icecandidate", (e) => e.candidate && a.addIceCandidate(e.candidate));
}

function connected(pc) {
  return new Promise((resolve, reject) => {
    const look = () => {
      if (pc.connectionState === "connected") resolve();
      if (pc.connectionState === "failed") reject(new Error("connection failed"));
    };
    pc.addEventListener("connectionstatechange", look);
    look();
  });
}

async function negotiate(a, b) {
  await a.setLocalDescription(await a.createOffer());
  await b.setRemoteDescription(a.localDescription);
  await b.setLocalDescription(await b.createAnswer());
  await a.setRemoteDescription(b.localDescription);
}

async function statistics(pc) {
  const all = [...(await pc.getStats()).values()];
  const byId = new Map(all.map((s) => [s.id, s]));
  const transport = all.find((s) => s.type === "transport");
  const pair = byId.get(transport?.selectedCandidatePairId);
  const describe = (c) => c && { type: c.candidateType, protocol: c.protocol, relayProtocol: c.relayProtocol,
                                 address: c.address, port: c.port };
  const inbound = (kind) => all.find((s) => s.type === "inbound-rtp" && s.kind === kind);
  const video = inbound("video");
  const audio = inbound("audio");
  return {
    local: describe(byId.get(pair?.localCandidateId)),
    remote: describe(byId.get(pair?.remoteCandidateId)),
    bytesSent: pair?.bytesSent, bytesReceived: pair?.bytesReceived,
    framesDecoded: video?.framesDecoded, framesPerSecond: video?.framesPerSecond,
    videoPacketsLost: video?.packetsLost, videoPacketsReceived: video?.packetsReceived,
    audioSamples: audio?.totalSamplesReceived, audioConcealed: audio?.concealedSamples,
    audioPacketsLost: audio?.packetsLost, audioPacketsReceived: audio?.packetsReceived,
  };
}

async function dataBothWays(channel, incoming, nBytes) {
  const [a, b] = [channel, await withTimeout(incoming, 15000, "data channel")];
  for (const c of [a, b]) {
    c.binaryType = "arraybuffer";
  }
  const atB = receiveAll(b, nBytes);
  const atA = receiveAll(a, nBytes);
  const work = Promise.all([sendAll(a, randomBytes(nBytes)), sendAll(b, randomBytes(nBytes)), atB, atA]);
  const [sentByA, sentByB, receivedByB, receivedByA] = await withTimeout(work, 60000, "data transfer");
  return { sentByA, receivedByB, sentByB, receivedByA };
}

async function call({ iceServers, dataBytes, mediaSeconds }) {
  const result = { log: [], stages: [] };
  const a = connection(iceServers[0], result.log, "a");
  const b = connection(iceServers[1], result.log, "b");
  try {
    exchangeCandidates(a, b);
    const streams = [];
    if (mediaSeconds > 0) {
      for (const [pc, other, id] of [[a, b, "b"], [b, a, "a"]]) {
        const stream = await navigator.mediaDevices.getUserMedia({ audio: true, video: { width: 640, height: 480 } });
        streams.push(stream);
        stream.getTracks().forEach((track) => pc.addTrack(track, stream));
        other.addEventListener("track", (e) => { document.getElementById(id).srcObject = e.streams[0]; });
      }
      result.stages.push("media");
    }
    const channel = a.createDataChannel("data");
    const incoming = new Promise((resolve) => b.addEventListener("datachannel", (e) => resolve(e.channel)));
    const open = new Promise((resolve) => channel.addEventListener("open", resolve));
    await negotiate(a, b);
    await withTimeout(Promise.all([connected(a), connected(b)]), 30000, "connection");
    result.stages.push("connected");
    await withTimeout(open, 15000, "data channel open");
    result.data = await dataBothWays(channel, incoming, dataBytes);
    result.stages.push("data");
    if (mediaSeconds > 0) {
      const before = [await statistics(a), await statistics(b)];
      await sleep(mediaSeconds * 1000);
      result.before = { a: before[0], b: before[1] };
      result.stages.push("played");
    }
    streams.forEach((s) => s.getTracks().forEach((t) => t.stop()));
  } catch (error) {
    result.error = String(error);
  }
  result.a = await statistics(a);
  result.b = await statistics(b);
  a.close();
  b.close();
  return result;
}

window.call = call;
window.ready = true;
