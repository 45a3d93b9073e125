import { runApp } from "@larkline/process/app";
import { startWorkerApp } from "./app.ts";

await runApp(startWorkerApp, { givesWay: true, watched: "agent-worker" });
