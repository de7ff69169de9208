// One client in a tab of its own, allowed to use nothing but the relay. Signalling is done from outside.

const state = { log: [], heard: [] };

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, ms) {
  const end = performance.now() + ms;
  while (!condition() && performance.now() < end) {
    await sleep(20);
  }
  return condition();
}

window.prepare = (iceServers) => {
  const pc = new RTCPeerConnection({ iceServers, iceTransportPolicy: "relay" });
  const note = (text) => state.log.push(`${Math.round(performance.now())} ${text}`);
  pc.addEventListener("icecandidate", (e) => note(`candidate ${e.candidate ? e.candidate.candidate : "(end)"}`));
  pc.addEventListener("icecandidateerror", (e) => note(`candidate error ${e.errorCode} ${e.errorText} ${e.url}`));
  pc.addEventListener("connectionstatechange", () => note(`connection ${pc.connectionState}`));
  // The called side sends everything back, after its own mark.
  pc.addEventListener("datachannel", ({ channel }) => {
    channel.addEventListener("message", (e) => {
      state.heard.push(e.data);
      channel.send(`echo ${e.data}`);
    });
  });
  state.pc = pc;
};

async function describe() {
  const { pc } = state;
  await until(() => pc.iceGatheringState === "complete", 10000);
  return { type: pc.localDescription.type, sdp: pc.localDescription.sdp };
}

window.offer = async () => {
  state.channel = state.pc.createDataChannel("tagged");
  state.channel.addEventListener("message", (e) => state.heard.push(e.data));
  await state.pc.setLocalDescription(await state.pc.createOffer());
  return describe();
};

window.answer = async (offer) => {
  await state.pc.setRemoteDescription(offer);
  await state.pc.setLocalDescription(await state.pc.createAnswer());
  return describe();
};

window.accept = (answer) => state.pc.setRemoteDescription(answer);

window.report = async () => {
  const all = [...(await state.pc.getStats()).values()];
  const byId = new Map(all.map((s) => [s.id, s]));
  const pair = byId.get(all.find((s) => s.type === "transport")?.selectedCandidatePairId);
  const end = (c) => c && { type: c.candidateType, protocol: c.protocol, address: c.address, port: c.port };
  return { connection: state.pc.connectionState, heard: state.heard, log: state.log,
           local: end(byId.get(pair?.localCandidateId)), remote: end(byId.get(pair?.remoteCandidateId)) };
};

// Sends `count` messages with the tag once connected and waits for as many; the report says what happened.
window.converse = async (tag, count) => {
  if (await until(() => state.channel.readyState === "open", 30000)) {
    for (let i = 0; i < count; i += 1) {
      state.channel.send(`${tag} message ${i}`);
    }
    await until(() => state.heard.length >= count, 10000);
  }
  return window.report();
};

window.ready = true;
