// Whether the app in this container is alive, for HEALTHCHECK.
const { MODE, PORT, SANDBOX_OPS_PORT } = process.env;
const port = MODE === "--sandbox-host" ? SANDBOX_OPS_PORT : PORT;
try {
  const { ok } = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(4_000) });
  process.exitCode = ok ? 0 : 1;
} catch {
  process.exitCode = 1;
}
