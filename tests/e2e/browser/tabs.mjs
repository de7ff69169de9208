// Starts a headless Chromium with one tab for each client, all at the same time, each allowed only the relay.
//   node tabs.mjs '{"executable": ..., "profile": "DIR", "kind": "pairs", "tabs": [{"iceServers": [...]}, ...]}'
//   node tabs.mjs '{..., "kind": "peer", "socket": "PATH", "tabs": [...]}'
// "pairs": tab 2k calls tab 2k+1. "peer": every tab calls the peer whose offers go to the Unix socket.
// Prints one JSON array: what each tab found out, in order.
import { request } from "node:http";
import { launch, servePages } from "./launch.mjs";

const MESSAGES = 20;

function postOffer(socketPath, offer) {
  return new Promise((resolve, reject) => {
    const post = request({ socketPath, path: "/", method: "POST" }, (response) => {
      let text = "";
      response.on("data", (chunk) => { text += chunk; });
      response.on("end", () => (response.statusCode === 200 ? resolve(JSON.parse(text)) : reject(new Error(text))));
    });
    post.on("error", reject);
    post.end(JSON.stringify(offer));
  });
}

async function callPeer(tabs, socketPath) {
  return Promise.all(tabs.map(async (tab, n) => {
    const offer = await tab.evaluate(() => window.offer());
    await tab.evaluate((answer) => window.accept(answer), await postOffer(socketPath, offer));
    return tab.evaluate(([tag, count]) => window.converse(tag, count), [`tab ${n}`, MESSAGES]);
  }));
}

async function callOne(caller, called, tag) {
  const offer = await caller.evaluate(() => window.offer());
  await caller.evaluate((answer) => window.accept(answer), await called.evaluate((o) => window.answer(o), offer));
  return [await caller.evaluate(([t, count]) => window.converse(t, count), [tag, MESSAGES]),
          await called.evaluate(() => window.report())];
}

async function callEachOther(tabs) {
  const pairs = tabs.filter((_, n) => n % 2 === 0).map((caller, k) => [caller, tabs[2 * k + 1]]);
  return (await Promise.all(pairs.map(([a, b], k) => callOne(a, b, `call ${k}`)))).flat();
}

const config = JSON.parse(process.argv[2]);
const server = await servePages(["/tab.html", "/tab.js"]);
const browser = await launch(config);
try {
  const tabs = await Promise.all(config.tabs.map(async ({ iceServers }) => {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(`page: ${error}`));
    await page.goto(`http://127.0.0.1:${server.address().port}/tab.html`);
    await page.waitForFunction("window.ready === true");
    await page.evaluate((servers) => window.prepare(servers), iceServers);
    return page;
  }));
  const results = config.kind === "peer" ? await callPeer(tabs, config.socket) : await callEachOther(tabs);
  console.log(JSON.stringify(results));
} finally {
  await browser.close();
  server.close();
}
