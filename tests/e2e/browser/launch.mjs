// A headless Chromium, and a server for its pages. They come from localhost: a secure context.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  // Tabs in the background are clients like any other.
  "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
  "--disable-backgrounding-occluded-windows",
];

export async function servePages(paths) {
  const server = createServer(async (request, response) => {
    if (!paths.includes(request.url)) {
      response.writeHead(404).end();
      return;
    }
    const type = request.url.endsWith(".js") ? "text/javascript" : "text/html";
    response.writeHead(200, { "content-type": type }).end(await readFile(join(here, request.url)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

export function launch({ profile, executable }) {
  return chromium.launchPersistentContext(profile, { executablePath: executable, headless: true, args: FLAGS,
                                                     timeout: 60000 });
}
