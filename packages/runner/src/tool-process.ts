/* The program of the processes that run tools of level `process`: see process-level.ts. */
import { quickenImports } from "./quick-imports.ts";

quickenImports();
const { serveTools } = await import("./tool-host.ts");
serveTools();
