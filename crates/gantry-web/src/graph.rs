//! Places the nodes of a graph in columns, so that edges lead to the right and cross seldom.

use std::collections::HashMap;

use gantry_protocol::{GraphLayout, GraphLine, GraphNode, GraphParams, GraphPlace};

const MAX_NODES: usize = 500;
const MAX_EDGES: usize = 2_000;
const MAX_SIZE: f64 = 1_000.0;
const WIDTH: f64 = 160.0;
const HEIGHT: f64 = 48.0;
const COLUMN_GAP: f64 = 64.0;
const ROW_GAP: f64 = 20.0;
/// The height of the place where a long edge passes a column.
const PASSAGE: f64 = 4.0;
/// Long edges beyond this many passages are drawn straight.
const MAX_PASSAGES: usize = 5_000;
const SWEEPS: usize = 8;

/// What is wrong with the parameters.
pub(crate) struct Invalid(pub(crate) String);

pub(crate) fn layout(params: &GraphParams) -> Result<GraphLayout, Invalid> {
    let edges = checked(params)?;
    let layers = layers(params.nodes.len(), &edges);
    let mut cells: Vec<Cell> =
        params.nodes.iter().zip(&layers).map(|(node, layer)| Cell::of(node, *layer)).collect();
    let paths = passages(&mut cells, &edges);
    let mut columns = columns(&cells);
    order(&mut columns, &paths, cells.len());
    let (width, height) = place(&mut cells, &columns);
    let nodes = params.nodes.iter().zip(&cells).map(|(node, cell)| GraphPlace {
        id: node.id.clone(),
        x: cell.x,
        y: cell.y,
        width: cell.width,
        height: cell.height,
        layer: cell.layer,
    });
    let lines = params.edges.iter().zip(&edges).zip(&paths).map(|((edge, (from, to)), path)| GraphLine {
        from: edge.from.clone(),
        to: edge.to.clone(),
        points: line(&cells, *from, *to, path),
    });
    Ok(GraphLayout { width, height, nodes: nodes.collect(), edges: lines.collect() })
}

/// A node, or the place where a long edge passes a column.
struct Cell {
    layer: usize,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Cell {
    fn of(node: &GraphNode, layer: usize) -> Cell {
        let (width, height) = (node.width.unwrap_or(WIDTH), node.height.unwrap_or(HEIGHT));
        Cell { layer, x: 0.0, y: 0.0, width, height }
    }

    fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// The edges as indices of nodes.
fn checked(params: &GraphParams) -> Result<Vec<(usize, usize)>, Invalid> {
    if params.nodes.len() > MAX_NODES || params.edges.len() > MAX_EDGES {
        return Err(Invalid(format!("a graph has at most {MAX_NODES} nodes and {MAX_EDGES} edges")));
    }
    let mut numbers = HashMap::new();
    for (number, node) in params.nodes.iter().enumerate() {
        let sizes = [node.width, node.height].into_iter().flatten();
        if sizes.into_iter().any(|size| !(0.0..=MAX_SIZE).contains(&size)) {
            return Err(Invalid(format!("the size of node {:?} must be between 0 and {MAX_SIZE}", node.id)));
        }
        if numbers.insert(node.id.as_str(), number).is_some() {
            return Err(Invalid(format!("there are two nodes {:?}", node.id)));
        }
    }
    let number = |id: &str| {
        numbers.get(id).copied().ok_or_else(|| Invalid(format!("an edge names the unknown node {id:?}")))
    };
    params.edges.iter().map(|edge| Ok((number(&edge.from)?, number(&edge.to)?))).collect()
}

/// The column of each node: one to the right of the last node that leads to it. Edges that close a circle do not count.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut following = vec![Vec::new(); nodes];
    for (from, to) in edges.iter().filter(|(from, to)| from != to) {
        following[*from].push(*to);
    }
    // A walk in depth: nodes in the order in which they are left, and back edges removed.
    let (mut state, mut left) = (vec![0_u8; nodes], Vec::with_capacity(nodes));
    let mut counted = vec![Vec::new(); nodes];
    let has_incoming: Vec<bool> =
        (0..nodes).map(|node| edges.iter().any(|(from, to)| *to == node && *from != node)).collect();
    let starts = (0..nodes).filter(|node| !has_incoming[*node]).chain(0..nodes);
    for start in starts {
        if state[start] != 0 {
            continue;
        }
        let mut stack = vec![(start, 0)];
        state[start] = 1;
        while let Some((node, next)) = stack.last_mut() {
            match following[*node].get(*next).copied() {
                Some(to) => {
                    *next += 1;
                    if state[to] != 1 {
                        counted[*node].push(to);
                    }
                    if state[to] == 0 {
                        state[to] = 1;
                        stack.push((to, 0));
                    }
                }
                None => {
                    state[*node] = 2;
                    left.push(*node);
                    stack.pop();
                }
            }
        }
    }
    let mut layers = vec![0; nodes];
    for node in left.into_iter().rev() {
        for to in &counted[node] {
            layers[*to] = layers[*to].max(layers[node] + 1);
        }
    }
    layers
}

/// Adds a cell to each column that an edge passes. Returns the path of each edge, from left to right.
fn passages(cells: &mut Vec<Cell>, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let nodes = cells.len();
    let mut paths = Vec::with_capacity(edges.len());
    for (from, to) in edges {
        let (left, right) = match cells[*from].layer <= cells[*to].layer {
            true => (*from, *to),
            false => (*to, *from),
        };
        let mut path = vec![left];
        for layer in cells[left].layer + 1..cells[right].layer {
            if cells.len() - nodes >= MAX_PASSAGES {
                break;
            }
            path.push(cells.len());
            cells.push(Cell { layer, x: 0.0, y: 0.0, width: 0.0, height: PASSAGE });
        }
        path.push(right);
        paths.push(path);
    }
    paths
}

fn columns(cells: &[Cell]) -> Vec<Vec<usize>> {
    let count = cells.iter().map(|cell| cell.layer + 1).max().unwrap_or(0);
    let mut columns = vec![Vec::new(); count];
    for (number, cell) in cells.iter().enumerate() {
        columns[cell.layer].push(number);
    }
    columns
}

/// Orders each column by the middle of the neighbors in the column before or after it.
fn order(columns: &mut [Vec<usize>], paths: &[Vec<usize>], cells: usize) {
    let (mut before, mut after) = (vec![Vec::new(); cells], vec![Vec::new(); cells]);
    for pair in paths.iter().flat_map(|path| path.windows(2)) {
        if let [left, right] = *pair {
            after[left].push(right);
            before[right].push(left);
        }
    }
    let mut position = vec![0.0; cells];
    let number = |column: &[usize], position: &mut [f64]| {
        for (place, cell) in column.iter().enumerate() {
            // Columns of different lengths compare by their middles.
            position[*cell] = index(place) - index(column.len()) / 2.0;
        }
    };
    columns.iter().for_each(|column| number(column, &mut position));
    for sweep in 0..SWEEPS {
        let forward = sweep % 2 == 0;
        let neighbors = if forward { &before } else { &after };
        let count = columns.len();
        for step in 0..count {
            let column = &mut columns[if forward { step } else { count - 1 - step }];
            let mut wanted: Vec<(f64, usize)> = column
                .iter()
                .map(|cell| {
                    let near = &neighbors[*cell];
                    let sum: f64 = near.iter().map(|other| position[*other]).sum();
                    (if near.is_empty() { position[*cell] } else { sum / index(near.len()) }, *cell)
                })
                .collect();
            wanted.sort_by(|one, other| one.0.total_cmp(&other.0));
            *column = wanted.into_iter().map(|(_, cell)| cell).collect();
            number(column, &mut position);
        }
    }
}

/// Gives each cell its place. Returns the size of the picture.
fn place(cells: &mut [Cell], columns: &[Vec<usize>]) -> (f64, f64) {
    let tall = |cells: &[Cell], column: &[usize]| {
        let sum: f64 = column.iter().map(|cell| cells[*cell].height + ROW_GAP).sum();
        (sum - ROW_GAP).max(0.0)
    };
    let height = columns.iter().map(|column| tall(cells, column)).fold(0.0, f64::max);
    let mut x: f64 = 0.0;
    for column in columns {
        let wide = column.iter().map(|cell| cells[*cell].width).fold(0.0, f64::max);
        let mut y = (height - tall(cells, column)) / 2.0;
        for cell in column {
            let cell = &mut cells[*cell];
            (cell.x, cell.y) = (x + (wide - cell.width) / 2.0, y);
            y += cell.height + ROW_GAP;
        }
        x += wide + COLUMN_GAP;
    }
    ((x - COLUMN_GAP).max(0.0), height)
}

fn line(cells: &[Cell], from: usize, to: usize, path: &[usize]) -> Vec<[f64; 2]> {
    let right = |cell: &Cell| [cell.x + cell.width, cell.middle()];
    let left = |cell: &Cell| [cell.x, cell.middle()];
    if from == to {
        // A loop above the node.
        let cell = &cells[from];
        let (above, middle) = (cell.y - ROW_GAP / 2.0, cell.x + cell.width / 2.0);
        return vec![right(cell), [cell.x + cell.width, above], [middle, above], [middle, cell.y]];
    }
    let inner = path.iter().skip(1).take(path.len().saturating_sub(2)).map(|cell| left(&cells[*cell]));
    let (start, end) = (&cells[from], &cells[to]);
    match start.layer <= end.layer {
        true => std::iter::once(right(start)).chain(inner).chain([left(end)]).collect(),
        // An edge that closes a circle leads back.
        false => std::iter::once(left(start))
            .chain(inner.collect::<Vec<_>>().into_iter().rev())
            .chain([right(end)])
            .collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most a few thousand cells")]
fn index(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use gantry_protocol::GraphEdge;
    use proptest::prelude::*;

    use super::*;

    fn params(nodes: &[&str], edges: &[(&str, &str)]) -> GraphParams {
        let node = |id: &&str| GraphNode { id: (*id).to_owned(), width: None, height: None };
        let edge = |(from, to): &(&str, &str)| GraphEdge { from: (*from).to_owned(), to: (*to).to_owned() };
        GraphParams { nodes: nodes.iter().map(node).collect(), edges: edges.iter().map(edge).collect() }
    }

    fn of(params: &GraphParams) -> GraphLayout {
        layout(params).unwrap_or_else(|Invalid(reason)| panic!("{reason}"))
    }

    fn crossings(layout: &GraphLayout) -> usize {
        let lines: Vec<_> = layout
            .edges
            .iter()
            .map(|edge| (edge.points[0][1], edge.points[edge.points.len() - 1][1]))
            .collect();
        let pairs = lines
            .iter()
            .enumerate()
            .flat_map(|(at, one)| lines[at + 1..].iter().map(move |other| (one, other)));
        pairs.filter(|(one, other)| (one.0 - other.0) * (one.1 - other.1) < 0.0).count()
    }

    #[test]
    fn edges_lead_to_the_right() {
        let layout =
            of(&params(&["a", "b", "c", "d"], &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]));
        assert_eq!(layout.nodes.iter().map(|node| node.layer).collect::<Vec<_>>(), [0, 1, 1, 2]);
        for edge in &layout.edges {
            assert!(edge.points.windows(2).all(|pair| pair[0][0] < pair[1][0]), "{edge:?}");
        }
        assert_eq!(layout.edges[4].points.len(), 3, "the long edge passes the middle column");
    }

    #[test]
    fn crossings_that_order_can_avoid_are_avoided() {
        let layout = of(&params(&["a", "b", "c", "x", "y", "z"], &[("a", "z"), ("b", "y"), ("c", "x")]));
        assert_eq!(crossings(&layout), 0);
    }

    #[test]
    fn circles_and_loops_end() {
        let layout = of(&params(&["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "a"), ("b", "b")]));
        assert_eq!(layout.nodes.iter().map(|node| node.layer).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(layout.edges[2].points[0][0] > layout.edges[2].points.last().unwrap()[0], "it leads back");
    }

    #[test]
    fn invalid_graphs_are_rejected() {
        let many: Vec<String> = (0..=MAX_NODES).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for bad in [params(&["a", "a"], &[]), params(&["a"], &[("a", "b")]), params(&many, &[])] {
            assert!(layout(&bad).is_err());
        }
        for size in [f64::NAN, f64::INFINITY, -1.0, 1e9] {
            let mut bad = params(&["a"], &[]);
            bad.nodes[0].width = Some(size);
            assert!(layout(&bad).is_err(), "{size}");
        }
        assert_eq!(of(&params(&[], &[])).nodes, []);
    }

    #[test]
    fn largest_graph_is_placed_quickly() {
        let ids: Vec<String> = (0..MAX_NODES).map(|n| n.to_string()).collect();
        let nodes: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut chain: Vec<(&str, &str)> = nodes.windows(2).map(|pair| (pair[0], pair[1])).collect();
        chain.extend((0..MAX_EDGES - chain.len()).map(|n| (nodes[n % 100], nodes[MAX_NODES - 1 - n % 97])));
        let started = std::time::Instant::now();
        of(&params(&nodes, &chain));
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    proptest! {
        #[test]
        fn nodes_never_overlap(edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..30)) {
            let ids: Vec<String> = (0..12).map(|n| n.to_string()).collect();
            let nodes: Vec<&str> = ids.iter().map(String::as_str).collect();
            let edges: Vec<(&str, &str)> = edges.iter().map(|(from, to)| (nodes[*from], nodes[*to])).collect();
            let layout = of(&params(&nodes, &edges));
            for (at, one) in layout.nodes.iter().enumerate() {
                prop_assert!(one.x >= 0.0 && one.y >= 0.0 && one.x + one.width <= layout.width + 0.01 && one.y + one.height <= layout.height + 0.01);
                for other in &layout.nodes[at + 1..] {
                    let apart = one.x + one.width <= other.x || other.x + other.width <= one.x
                        || one.y + one.height <= other.y || other.y + other.height <= one.y;
                    prop_assert!(apart, "{one:?} {other:?}");
                }
            }
        }
    }
}
