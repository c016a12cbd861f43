// A plugin that says what became of the servers of tools before the model is asked, and keeps it from being asked
// without them. OpenCode goes on without a server that fails, and does not say so of one whose tools it could not list.

// How long is waited before a server at an address is asked again, in milliseconds: it may only have hung up.
const AGAIN = [500, 1500, 4000]

const after = (time) => new Promise((done) => setTimeout(done, time))

async function status(client, name) {
  // It answers when every server was tried.
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
    timer = setTimeout(done, most, { status: "failed", error: `it was not there after ${most / 1000} s` })
  })
  const found = await Promise.race([tried(client, name, again), late])
  clearTimeout(timer)
  return [name, found]
}

export const Servers = async ({ client }, servers) => {
  const judge = async () => {
    const all = await Promise.all(Object.entries(servers).map(([name, one]) => judged(client, name, one)))
    process.stdout.write(JSON.stringify({ type: "skein.servers", servers: Object.fromEntries(all) }) + "\n")
    if (all.some(([, found]) => found.status !== "connected")) throw new Error("a server of tools is missing")
  }
  let told
  return { "chat.message": () => (told ??= judge()) }
}
