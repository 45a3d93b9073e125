import { useDeployment } from "./conversation-deployment.ts";
// The first: it counts what tools have recorded.
import "./conversation-order.suite.ts";
import "./conversation-commands.suite.ts";
import "./conversation-context.suite.ts";
// Kills all workers.
import "./conversation-compaction.suite.ts";

useDeployment();
