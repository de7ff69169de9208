// Starts a headless Chromium on the page beside this file and has it make calls.
//   node run.mjs '{"executable": "/usr/bin/chromium", "profile": "DIR", "calls": [{...}, ...]}'
// Prints one JSON array: what call() of call.js gave for each. Calls run at the same time.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const TYPES = { "/page.html": "text/html", "/call.js": "text/javascript" };
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
  "--autoplay-policy=no-user-gesture-required",
];

// The page comes from localhost: a secure context, which the camera and the hash functions ask for.
async function servePage() {
  const server = createServer(async (request, response) => {
    const type = TYPES[request.url];
    if (!type) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": type }).end(await readFile(join(here, request.url)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

const config = JSON.parse(process.argv[2]);
const server = await servePage();
const browser = await chromium.launchPersistentContext(config.profile, {
  executablePath: config.executable, headless: true, args: FLAGS, timeout: 60000,
});
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error}`));
  await page.goto(`http://127.0.0.1:${server.address().port}/page.html`);
  await page.waitForFunction("window.ready === true");
  const results = await page.evaluate((calls) => Promise.all(calls.map((c) => window.call(c))), config.calls);
  console.log(JSON.stringify(results));
} finally {
  await browser.close();
  server.close();
}
