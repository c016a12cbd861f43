// A plugin that reports the state of the tool servers before the model is asked, and prevents a request to the model
// without them. OpenCode continues without a server that fails, and does not report one whose tools it could not list.

// Delays before a server with a URL is tried again, in milliseconds: the connection may only have been closed.
const AGAIN = [500, 1500, 4000]

const after = (time) => new Promise((done) => setTimeout(done, time))

async function status(client, name) {
  // OpenCode answers when every server was tried.
  const { data } = await client.mcp.status()
  return data?.[name] ?? { status: "unknown" }
}

async function tried(client, name, again) {
  let now = await status(client, name)
  for (const time of again ? AGAIN : []) {
    if (now.status === "connected") break
    await after(time)
    await client.mcp.connect({ path: { name } })
    now = await status(client, name)
  }
  return now
}

async function judged(client, name, { most, again }) {
  let timer
  const late = new Promise((done) => {
    timer = setTimeout(done, most, { status: "failed", error: `it did not connect within ${most / 1000} s` })
  })
  const found = await Promise.race([tried(client, name, again), late])
  clearTimeout(timer)
  return [name, found]
}

export const Servers = async ({ client }, servers) => {
  const judge = async () => {
    const all = await Promise.all(Object.entries(servers).map(([name, one]) => judged(client, name, one)))
    process.stdout.write(JSON.stringify({ type: "skein.servers", servers: Object.fromEntries(all) }) + "\n")
    if (all.some(([, found]) => found.status !== "connected")) throw new Error("a tool server is missing")
  }
  let told
  return { "chat.message": () => (told ??= judge()) }
}
